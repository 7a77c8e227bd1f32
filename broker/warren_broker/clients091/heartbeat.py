"""Heartbeats and timeouts of one connection; the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["", "beat", "missed", "late"]
"""Nothing to do; send a heartbeat; the client's heartbeats are missing; a timeout expired."""

HANG_UP_MS_MAX = 30_000
"""Maximum time for which a client that was sent connection.close-ok keeps its socket open."""


def hang_up_within_ms(heartbeat_ms: int) -> int:
    """Return how long a client may take to hang up: its heartbeat interval, as in RabbitMQ."""
    return min(heartbeat_ms or HANG_UP_MS_MAX, HANG_UP_MS_MAX)


@dataclass(slots=True)
class Liveness:
    """Heartbeats and timeouts of one connection; times in milliseconds.

    heartbeat_ms  negotiated; a heartbeat is sent after half of it without output, the client is
                  considered dead after twice of it without input; 0: none
    handshake_ms  until the connection runs
    closing_ms    from either close to its close-ok

    Input and output are recorded without a time: they count from the next tick, so with a tick per
    second the times are exact to a second.
    """

    handshake_ms: int
    closing_ms: int
    heartbeat_ms: int = 0
    _heard: bool = True
    _sent: bool = True
    _heard_ms: int = 0
    _sent_ms: int = 0
    _deadline_ms: int | None = None

    def heard(self) -> None:
        """Record that bytes were received."""
        self._heard = True

    def sent(self) -> None:
        """Record that bytes were sent."""
        self._sent = True

    def begin(self) -> None:
        """Restart the timeout for a new phase."""
        self._deadline_ms = None

    def tick(self, now_ms: int, state: str) -> Verdict:
        """Return what to do now with a connection in that phase."""
        if self._heard:
            self._heard, self._heard_ms = False, now_ms
        if self._sent:
            self._sent, self._sent_ms = False, now_ms
        if state == "running":
            return self._beat(now_ms)
        if state == "closed":
            return ""
        if self._deadline_ms is None:
            patience_ms = self.closing_ms if state in ("closing", "ending") else self.handshake_ms
            self._deadline_ms = now_ms + patience_ms
        return "late" if now_ms >= self._deadline_ms else ""

    def _beat(self, now_ms: int) -> Verdict:
        if not self.heartbeat_ms:
            return ""
        if now_ms - self._heard_ms >= 2 * self.heartbeat_ms:
            return "missed"
        if now_ms - self._sent_ms >= self.heartbeat_ms // 2:
            self._sent_ms = now_ms
            return "beat"
        return ""
