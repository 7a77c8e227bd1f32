"""Handler of the request to count messages by what they have in common."""

from __future__ import annotations

from typing import Any, Final

from warren_broker.admin.browse import Browsing
from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.shown_values import readable_text
from warren_broker.cluster.message_match import header_text, headers_of, hour_of, latest_death
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.places import ViewRow
from warren_wire.admin import letters as m
from warren_wire.block.block import Block

VALUE_CHARACTERS_MAX: Final = 200
"""Of a value that messages have in common; longer ones are cut, and so are one group."""


class _Grouping(Browsing):
    """Groups of messages; it ends like a page, or when there are too many groups."""

    def __init__(
        self, asker: Asker, queue: QueueRecord, request: m.GroupLettersRequest, answer: Answer
    ) -> None:
        super().__init__(asker, queue, request, request.states, request.after, answer)
        self._keys = request.keys
        self._groups: dict[tuple[str, ...], list[int]] = {}

    def is_full(self) -> bool:
        """See `Browsing`."""
        return len(self._groups) >= m.LETTER_GROUPS_MAX

    def reads(self) -> bool:
        """See `Browsing`: bytes are counted, too."""
        return True

    def answered(self, behind: str) -> m.LetterGroups:
        """See `Browsing`."""
        found = tuple(
            m.LetterGroup(dict(zip(self._keys, values, strict=True)), *counts)
            for values, counts in self._groups.items()
        )
        return m.LetterGroups(found, behind, self._looked, self._current)

    def take(self, row: ViewRow, block: Block | None, at: int, born_ms: int, why: str) -> None:
        """See `Browsing`."""
        values = ("",) * len(self._keys)
        if self._keys and block is not None:
            values = _values(self._keys, block, at, born_ms)
        size = 0 if block is None else len(block.body(at))
        known = self._groups.get(values)
        if known is None:
            self._groups[values] = [1, size, born_ms, born_ms, row[2], row[3]]
            return
        known[0] += 1
        known[1] += size
        known[2:4] = min(known[2], born_ms), max(known[3], born_ms)


def _values(keys: tuple[str, ...], block: Block, at: int, born_ms: int) -> tuple[str, ...]:
    headers: dict[str, Any] = headers_of(block, at)
    death = latest_death(headers)
    exchange, key = (part.decode("utf-8", "replace") for part in block.route(at))
    said = {
        m.BY_REASON: death.reason,
        m.BY_ORIGIN: death.queue,
        m.BY_HOUR: hour_of(death.at_ms or born_ms),
        m.BY_EXCHANGE: exchange,
        m.BY_KEY: key,
    }
    found = (
        said[key] if key in said else header_text(headers.get(key.removeprefix(m.BY_HEADER)))
        for key in keys
    )
    return tuple(readable_text(one[:VALUE_CHARACTERS_MAX]) for one in found)


def _group(asker: Asker, request: m.GroupLettersRequest, answer: Answer) -> None:
    asker.access.browse_queue(request.name)
    queue = asker.queue(request.name, store=True)
    _Grouping(asker, queue, request, answer).begin()
