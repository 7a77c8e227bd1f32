"""Which messages are meant by a browser or a job, and what a dead letter's history says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from warren_broker.cluster.client.published_deaths import X_DEATH
from warren_machines.message_filter.definition import MessageFilter
from warren_machines.message_filter.evaluator import Evaluator
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field
from warren_wire.arguments import plain
from warren_wire.block.block import Block
from warren_wire.errors import InvalidArgument
from warren_wire.job_spec import Wanted
from warren_wire.kernel import readable
from warren_wire.sql_filter import FilterRefused

_HOUR_FORMAT: Final = "%Y-%m-%dT%H"
_FIRST_DEATH_HEADERS: Final = ("x-first-death-queue", "x-first-death-reason")


class Death(NamedTuple):
    """A message's latest death; all empty: it has none. at_ms: in milliseconds since 1970."""

    queue: str = ""
    reason: str = ""
    at_ms: int = 0


def headers_of(block: Block, at: int) -> dict[str, Any]:
    """Return a message's headers as plain values."""
    found: dict[str, Any] = plain(properties.headers(readable(bytes(block.properties(at)))))
    return found


def latest_death(headers: dict[str, Any]) -> Death:
    """Return a message's latest death, whichever broker or client has written it."""
    deaths = headers.get(X_DEATH)
    said = deaths[0] if isinstance(deaths, list) and deaths else None
    if not isinstance(said, dict):
        queue, reason = (headers.get(name) for name in _FIRST_DEATH_HEADERS)
        return Death(_text(queue), _text(reason))
    time = said.get("time")
    at_ms = int(time) * 1000 if isinstance(time, int) else 0
    return Death(_text(said.get("queue")), _text(said.get("reason")), at_ms)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def hour_of(at_ms: int) -> str:
    """Return the hour of a time in UTC, such as 2026-11-30T04; "": it is not known."""
    if not 0 < at_ms < 1 << 47:
        return ""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime(_HOUR_FORMAT)


def header_text(value: object) -> str:
    """Return a header's value as groups and selections have it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


class MessageMatch:
    """Asks messages whether they are meant; raises InvalidArgument for a filter that is none."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._evaluator: Evaluator | None = None
        if wanted.filter:
            try:
                self._evaluator = Evaluator(MessageFilter((wanted.filter,)))
            except FilterRefused as refused:
                raise InvalidArgument(f"filter: {refused}") from None
        self._contains = wanted.contains.encode("utf-8", "surrogatepass")
        self._header, _, self._value = wanted.header.partition("=")
        self._past = bool(wanted.reason or wanted.origin or wanted.hour)
        self._headers = bool(self._past or self._header)

    @property
    def asks_time(self) -> bool:
        """Whether it depends on when a message entered the queue."""
        wanted = self._wanted
        return bool(wanted.hour or wanted.born_from or wanted.born_to < 1 << 62)

    @property
    def reads(self) -> bool:
        """Whether the message itself must be read for an answer."""
        priority = self._wanted.priority is not None
        return bool(self._evaluator or self._contains or self._headers or priority)

    def takes(self, block: Block | None, at: int, born_ms: int) -> bool:
        """Return whether message `at` is meant; without a block: as far as its age says."""
        wanted = self._wanted
        if not wanted.born_from <= born_ms <= wanted.born_to:
            return False
        if block is None:
            return not self.reads
        if wanted.priority is not None and block.priority(at) != wanted.priority:
            return False
        if self._headers and not self._told(headers_of(block, at), born_ms):
            return False
        if self._evaluator is not None and not self._evaluator.matches(block, at):
            return False
        return not self._contains or self._contains in bytes(block.body(at))

    def _told(self, headers: dict[str, Any], born_ms: int) -> bool:
        wanted = self._wanted
        if self._header and header_text(headers.get(self._header)) != self._value:
            return False
        if not self._past:
            return True
        death = latest_death(headers)
        if wanted.hour and hour_of(death.at_ms or born_ms) != wanted.hour:
            return False
        return (not wanted.reason or death.reason == wanted.reason) and (
            not wanted.origin or death.queue == wanted.origin
        )


def with_headers(raw: bytes, changes: dict[str, Any], dropped: tuple[str, ...] = ()) -> bytes:
    """Return properties with headers that are set, or removed where they are None.

    A new header comes before the history (`published_deaths`), and behind the first one, which may
    be the sections of AMQP 1.0; dropped: these are removed, too
    """
    before: dict[str, Field] = dict(properties.headers(raw))
    headers: dict[str, Any] = {}
    fresh = {k: v for k, v in changes.items() if v is not None and k not in before}
    for place, (name, value) in enumerate(before.items()):
        if name == X_DEATH or place == 1:
            headers |= fresh
        if name not in dropped and not (name in changes and changes[name] is None):
            headers[name] = changes.get(name, value)
    return properties.replace(raw, headers={**headers, **fresh} if fresh else headers)
