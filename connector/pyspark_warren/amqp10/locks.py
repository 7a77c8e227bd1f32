"""Locks of Azure Service Bus: messages and sessions that are a receiver's for a time.

With peek-lock a message that is not settled within its lock's time is delivered again. So locks are
renewed as long as their messages wait for a commit, by requests to the entity's $management, as
Microsoft's documents of the protocol describe them.
"""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import Any, Final

from pyspark_warren.amqp10.links import Peer
from pyspark_warren.amqp10.requests import Answer, RequestLinks
from pyspark_warren.options.amqp10 import ANY_SESSION
from warren_wire.amqp10.proton import UNDESCRIBED, Array, Condition, Data, symbol

ENTITY_MANAGEMENT: Final = "$management"
SESSION_FILTER: Final = "com.microsoft:session-filter"
SESSION_LOCKED_UNTIL: Final = "com.microsoft:locked-until-utc"
RENEW_LOCK: Final = "com.microsoft:renew-lock"
RENEW_SESSION: Final = "com.microsoft:renew-session-lock"
LOCKS_LOOK_S: Final = 1.0
LOCK_RENEW_SHARE: Final = 0.5
"""A lock is renewed when half of its time is left."""
RENEWED_AT_ONCE: Final = 1_000
LOCK_S: Final = 30.0
"""The life of a session's lock that does not say it: Service Bus's default is 60 s."""
_TICKS_1970: Final = 621_355_968_000_000_000
"""Service Bus says times of sessions in .NET's ticks of 100 ns since the year 1."""


def session_filter(link: Any, session: str) -> None:
    """Have the link receive one session; that of no name is whichever is free."""
    value = None if session == ANY_SESSION else session
    link.source.filter.put_object({symbol(SESSION_FILTER): value})


class MessageLocks:
    """The locks of one receiver's messages, and of its session.

    any  whether there was a lock; other brokers have none

    Invariant: `_until` and `_tokens` have the messages with a lock that are not settled
    """

    def __init__(self, peer: Peer, entity: str, link: Any) -> None:
        self.any = False
        self._peer, self._entity = peer, entity
        self._tokens: dict[int, uuid.UUID] = {}
        self._until: dict[int, float] = {}
        self._life_s = 0.0
        self._links: RequestLinks | None = None
        self._session, self._session_until = "", 0.0
        if peer.options.message_session:
            self._of_session(link)

    def note(self, tag: int, token: bytes, until_ms: int) -> None:
        """Note a message that is locked until then; its delivery's tag is the lock's token."""
        if len(token) != 16:
            return
        if self._session:  # the session's lock is that of its messages
            return
        now = time.time()
        self._tokens[tag], self._until[tag] = uuid.UUID(bytes_le=token), until_ms / 1000
        self._life_s = max(1.0, until_ms / 1000 - now)
        self._begin()

    def forget(self, tag: int) -> None:
        """Forget a message that was settled."""
        self._tokens.pop(tag, None)
        self._until.pop(tag, None)

    def _of_session(self, link: Any) -> None:
        """Note the session that the broker has given."""
        found = link.remote_source.filter
        found.rewind()
        given: Any = found.get_object() if found.next() else {}
        self._session = str((given or {}).get(symbol(SESSION_FILTER)) or "")
        ticks = (link.remote_properties or {}).get(symbol(SESSION_LOCKED_UNTIL))
        self._session_until = time.time() + LOCK_S
        if isinstance(ticks, int):
            self._session_until = (ticks - _TICKS_1970) / 10_000_000
        self._life_s = max(1.0, self._session_until - time.time())
        if self._session:
            self._begin()

    def _begin(self) -> None:
        if not self.any:
            self.any = True
            self._peer.later(min(LOCKS_LOOK_S, self._life_s * LOCK_RENEW_SHARE / 2), self._look)

    def _look(self) -> None:
        """Renew what is due, and look again."""
        if self._peer.over:
            return
        due_s = time.time() + self._life_s * LOCK_RENEW_SHARE
        due = [tag for tag, until in self._until.items() if until < due_s][:RENEWED_AT_ONCE]
        if due or (self._session and self._session_until < due_s):
            self._renew(due)
        self._peer.later(min(LOCKS_LOOK_S, self._life_s * LOCK_RENEW_SHARE / 2), self._look)

    def _renew(self, due: list[int]) -> None:
        if self._links is None:
            self._links = RequestLinks(
                self._peer, f"{self._entity}/{ENTITY_MANAGEMENT}", self._ended
            )
        if self._session:
            # Until the answer is there it is not asked for again.
            self._session_until += self._life_s * LOCK_RENEW_SHARE
            ask = {"operation": RENEW_SESSION}
            self._links.ask(ask, {"session-id": self._session}, self._session_renewed)
            return
        tokens = [self._tokens[tag] for tag in due]
        for tag in due:
            self._until[tag] += self._life_s * LOCK_RENEW_SHARE
        body = {"lock-tokens": Array(UNDESCRIBED, Data.UUID, *tokens)}
        self._links.ask({"operation": RENEW_LOCK}, body, partial(self._renewed, due))

    def _renewed(self, due: list[int], answer: Answer) -> None:
        given = (answer.body or {}).get("expirations") if answer.good else None
        times = list(getattr(given, "elements", given) or ())
        for tag, until in zip(due, times, strict=False):
            if tag in self._until:
                self._until[tag] = int(until) / 1000
        if not answer.good:
            self._peer.ended_by(Condition("com.microsoft:message-lock-lost", answer.text), "")

    def _session_renewed(self, answer: Answer) -> None:
        until = (answer.body or {}).get("expiration") if answer.good else None
        if until is not None:
            self._session_until = int(until) / 1000
        if not answer.good:
            self._peer.ended_by(Condition("com.microsoft:session-lock-lost", answer.text), "")

    def _ended(self, condition: Condition | None) -> None:
        self._peer.ended_by(condition, f"it has no node {self._entity}/{ENTITY_MANAGEMENT}")
