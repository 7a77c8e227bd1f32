"""Whether a connection is alive, judged by the time handed in."""

from __future__ import annotations

from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["", "beat", "missed", "late"]
"""Nothing; send a heartbeat; the client's are missing; it takes too long to answer."""


class Liveness:
    """Heartbeats and patience of one connection; times in milliseconds.

    heartbeat_ms  agreed on; we send one when nothing else was sent for half of it, and give the
                  client up when nothing came for twice that long; 0: none
    handshake_ms  until the connection runs
    closing_ms    from either close to its close-ok

    Bytes come and go without a time: they are taken to have done so at the tick that follows, so a
    tick a second is exact to a second.
    """

    __slots__ = (
        "_deadline_ms",
        "_heard",
        "_heard_ms",
        "_sent",
        "_sent_ms",
        "closing_ms",
        "handshake_ms",
        "heartbeat_ms",
    )

    def __init__(self, handshake_ms: int, closing_ms: int) -> None:
        self.heartbeat_ms = 0
        self.handshake_ms = handshake_ms
        self.closing_ms = closing_ms
        self._heard = self._sent = True
        self._heard_ms = self._sent_ms = 0
        self._deadline_ms: int | None = None

    def heard(self) -> None:
        """Bytes came."""
        self._heard = True

    def sent(self) -> None:
        """Bytes left."""
        self._sent = True

    def begin(self) -> None:
        """Another state began: patience is whole again."""
        self._deadline_ms = None

    def tick(self, now_ms: int, state: str) -> Verdict:
        """What the time says of a connection in that state."""
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
