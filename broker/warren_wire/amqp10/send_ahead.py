"""The bound of what a connection's sessions have written ahead of the client's reading."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warren_wire.amqp10.deliveries import Handle
from warren_wire.amqp10.proton import Session, lib

BEYOND_MAX: Final = 4
"""Sessions that may each have a message beyond the bound."""


class SendAhead:
    """What was written on all sessions of a connection and has not left for the client.

    1. A client begins 64 sessions, with a consumer of large messages on each, and closes their
    windows, or does not read.  2. If each session held as much as one alone may, the node would
    hold 64 times that, for each client. So they share the bound.
    3. A client closes the window of a session on which the bound is used up, and waits for messages
    on another one: that one may write a message beyond the bound when it holds nothing. There are
    BEYOND_MAX such sessions at a time.
    Replayed by tests/broker/clients10/test_send_ahead.py

    held  returns the bytes that were made already, and not taken by the socket

    Invariant: above the bound there are one message, and one for each of `_beyond`
    """

    def __init__(self, bytes_max: int, held: Callable[[], int]) -> None:
        self._bytes_max = bytes_max
        self._held = held
        self._sessions: dict[Handle, None] = {}
        self._beyond: set[Handle] = set()

    def begun(self, session: Session) -> None:
        """Take note of a session."""
        self._sessions[session._impl] = None

    def ended(self, session: Session) -> None:
        """Forget a session; what waited on it never leaves."""
        self._sessions.pop(session._impl, None)
        self._beyond.discard(session._impl)

    def clear(self) -> None:
        """Forget everything: the connection is freed."""
        self._sessions.clear()
        self._beyond.clear()

    @property
    def bytes_waiting(self) -> int:
        """What has not left, over all sessions."""
        waiting: int = sum(map(lib.pn_session_outgoing_bytes, self._sessions))
        return self._held() + waiting

    @property
    def bytes_received(self) -> int:
        """What has come on all sessions and was not read."""
        return sum(map(lib.pn_session_incoming_bytes, self._sessions))

    @property
    def room(self) -> int:
        """The bytes that may be written on any session before the bound is reached."""
        return self._bytes_max - self.bytes_waiting

    def has_room(self, session: Handle) -> bool:
        """Return whether a message may be written on a session, which is then done."""
        if self.bytes_waiting < self._bytes_max:
            return True
        waits = lib.pn_session_outgoing_bytes
        if self._held() >= self._bytes_max or waits(session):
            return False
        self._beyond = {each for each in self._beyond if waits(each)}
        if len(self._beyond) >= BEYOND_MAX:
            return False
        self._beyond.add(session)
        return True
