"""Judging the messages of queues led here by the filters of their consumers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Final, Protocol

import msgspec

from warren_broker.block.block import Block, BlockError
from warren_broker.cluster.leader.block_cache import BlockCache
from warren_broker.message_filter.definition import decode_filter
from warren_broker.message_filter.evaluator import Evaluator, Matches
from warren_broker.queue import effects as queue_effects
from warren_broker.queue.filter_commands import Judge, Judged
from warren_broker.queue.filters import Filter
from warren_broker.queue.state import QueueState
from warren_broker.sql_filter import FilterRefused
from warren_raft.runtime.host import Host, UnknownGroup
from warren_raft.runtime.loop import Loop
from warren_raft.storage.errors import EntryDamaged

log = logging.getLogger(__name__)

PIECE_MESSAGES: Final = 2_000
"""Messages of a queue that are judged in one turn, summed over its filters; a block is not cut."""


class ScannedQueues(Protocol):
    """The part of the cluster that the scans need."""

    loop: Loop
    host: Host
    stored: BlockCache


class FilterScans:
    """Reads the messages that filters have not judged, asks the filters, and proposes the answers.

    One piece of a queue is under way at a time: the next one follows when the queue's machine has
    applied it and is still behind (`FiltersBehind`). So a long backlog holds up neither this node,
    nor the queue, and a piece that is lost with its leader is judged again by the next one.
    """

    def __init__(
        self, cluster: ScannedQueues, propose: Callable[[int, Judge], None], led: set[int]
    ) -> None:
        self._cluster = cluster
        self._propose = propose
        self._led = led
        self._due: set[int] = set()
        self._under_way: dict[int, dict[int, int]] = {}

    def due(self, group: int, effect: queue_effects.FiltersBehind) -> None:
        """Judge a piece of the queue soon."""
        del effect
        self._soon(group)

    def forget(self, group: int) -> None:
        """Forget what is under way: this node begins or stops leading the queue."""
        self._under_way.pop(group, None)

    def _soon(self, group: int) -> None:
        if group not in self._due:
            self._due.add(group)
            self._cluster.loop.call_soon(partial(self._piece, group))

    def _piece(self, group: int) -> None:
        self._due.discard(group)
        if group not in self._led:
            return
        try:
            state: QueueState = self._cluster.host.state(group)
        except UnknownGroup:
            return
        proposed = self._under_way.setdefault(group, {})
        left = PIECE_MESSAGES
        found: list[Judged] = []
        for one in state.filters.behind():
            if proposed.get(one.id) == one.judged or left <= 0:
                continue
            said, used = self._judge(group, state, one, left)
            left -= used
            if said.to > said.after:
                found.append(said)
        known = {one.id for one in state.filters}
        for number in [number for number in proposed if number not in known]:
            del proposed[number]
        if found:
            proposed.update({said.filter: said.after for said in found})
            self._propose(group, Judge(tuple(found)))

    def _judge(self, group: int, state: QueueState, one: Filter, most: int) -> tuple[Judged, int]:
        """Return what a filter says of the next blocks, and the number of messages looked at."""
        evaluator = _evaluator(one.text)
        whole: list[int] = []
        parts: list[tuple[int, bytes]] = []
        used, to = 0, state.filters.newest
        before = one.judged
        for index in state.contents.after(one.judged):
            if used >= most:
                to = before
                break
            try:
                block = self._cluster.stored.read(group, index)
            except EntryDamaged:
                # What follows would be judged first, and its consumer get it before this one.
                self._cluster.host.repair.when(group, index, partial(self._soon, group))
                to = before
                break
            except (KeyError, BlockError) as error:
                log.error("entry %d of group %d: no filter can judge it: %s", index, group, error)
                before = index
                continue
            used += block.count
            before = index
            matches = _asked(evaluator, block, group, index)
            if matches.whole:
                whole.append(index)
            elif matches.bits:
                size = (matches.bits.bit_length() + 7) // 8
                parts.append((index, matches.bits.to_bytes(size, "little")))
        return Judged(one.id, one.judged, to, tuple(whole), tuple(parts)), used


def _asked(evaluator: Evaluator | None, block: Block, group: int, index: int) -> Matches:
    if evaluator is None:
        return Matches(0, False)
    try:
        return evaluator.asked(block)
    except BlockError as error:
        log.error("entry %d of group %d: no filter can judge it: %s", index, group, error)
        return Matches(0, False)


@lru_cache(maxsize=256)
def _evaluator(text: bytes) -> Evaluator | None:
    """Return the filter; None: this node does not know it, and nothing matches it."""
    try:
        return Evaluator(decode_filter(text))
    except (FilterRefused, msgspec.MsgspecError) as error:
        log.error("a consumer's filter cannot be read, so it matches nothing: %s", error)
        return None
