"""Judging the messages of queues led here by the filters of their consumers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Final, Protocol

from warren_broker.cluster.leader.block_cache import BlockCache
from warren_broker.cluster.leader.set_aside import SetAsideCounts
from warren_machines.message_filter.definition import decode_filter
from warren_machines.message_filter.evaluator import Evaluator
from warren_machines.queue import effects as queue_effects
from warren_machines.queue.filters.filter_commands import Judge, Judged
from warren_machines.queue.filters.filters import Filter
from warren_machines.queue.state import QueueState
from warren_raft.runtime.host import Host, UnknownGroup
from warren_raft.runtime.loop import Loop
from warren_raft.storage.errors import EntryDamaged
from warren_wire.block.block import Block, BlockError
from warren_wire.sql_filter import FilterRefused
from warren_wire.undecodable import UNDECODABLE

log = logging.getLogger(__name__)

PIECE_MESSAGES: Final = 2_000
"""Messages of a queue that are judged in one turn, summed over its filters."""
TURN_MS: Final = 20
"""Time of a turn of the loop in which all queues led here are judged; what is left waits for the
next one. The last block that is read in it, and the last message, are not interrupted."""
ASKED_MS: Final = 10
"""Time for a filter after its block was read, however long that took: so a block that takes long to
read is not read again for each of its messages."""


class ScannedQueues(Protocol):
    """The part of the cluster that the scans need."""

    loop: Loop
    host: Host
    stored: BlockCache
    set_aside: SetAsideCounts


@dataclass(slots=True)
class _Begun:
    """A block that a filter has been asked about in part: the messages before `at`."""

    index: int
    at: int = 0
    bits: int = 0

    def ask(self, evaluator: Evaluator, block: Block, over: Callable[[], bool]) -> None:
        """Ask about the following messages until time is over, about one at least."""
        while self.at < block.count:
            self.bits |= evaluator.matches(block, self.at) << self.at
            self.at += 1
            if over():
                return


@dataclass(eq=False, repr=False)
class FilterScans:
    """Reads the messages that filters have not judged, asks the filters, and proposes the answers.

    One piece of a queue is under way at a time: the next one follows when the queue's machine has
    applied it and is still behind (`FiltersBehind`). So a long backlog holds up neither this node,
    nor the queue, and a piece that is lost with its leader is judged again by the next one.

    A turn of the loop is held up for TURN_MS, whatever the filters and the messages are: 1. A
    client's filter has LIKE many times, and messages have long texts, or are megabytes long.  2. A
    piece of them takes seconds.  3. This node sends no heartbeats meanwhile, and is suspected.  4.
    The next leader begins with the same piece. The filters of a queue, and the queues, take turns,
    so that those that take little time do not wait for such a one.
    """

    cluster: ScannedQueues
    propose: Callable[[int, Judge], None]
    led: set[int]
    _due: dict[int, None] = field(default_factory=dict)
    _called: bool = False
    _under_way: dict[int, dict[int, int]] = field(default_factory=dict)
    _begun: dict[int, dict[int, _Begun]] = field(default_factory=dict)
    _asked_last: dict[int, int] = field(default_factory=dict)
    _healing: set[tuple[int, int]] = field(default_factory=set)

    def due(self, group: int, effect: queue_effects.FiltersBehind) -> None:
        """Judge a piece of the queue soon."""
        del effect
        self._soon(group)

    def forget(self, group: int) -> None:
        """Forget what is under way: this node begins or stops leading the queue."""
        self._under_way.pop(group, None)
        self._begun.pop(group, None)
        self._asked_last.pop(group, None)

    def _soon(self, group: int) -> None:
        self._due[group] = None
        if not self._called:
            self._called = True
            self.cluster.loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Judge a piece of each queue that is due, as long as there is time."""
        self._called = False
        until = self.cluster.loop.clock.monotonic_ms() + TURN_MS
        for group in list(self._due):
            del self._due[group]
            self._piece(group, until)
            if self._over(until):
                break
        for group in list(self._due):
            self._soon(group)

    def _over(self, until: int) -> bool:
        return self.cluster.loop.clock.monotonic_ms() >= until

    def _piece(self, group: int, until: int) -> None:
        if group not in self.led:
            return
        try:
            state: QueueState = self.cluster.host.state(group)
        except UnknownGroup:
            return
        proposed = self._under_way.setdefault(group, {})
        known = {one.id for one in state.filters}
        for each in (proposed, self._begun.setdefault(group, {})):
            for number in [number for number in each if number not in known]:
                del each[number]
        last = self._asked_last.get(group, 0)
        behind = [one for one in state.filters.behind() if proposed.get(one.id) != one.judged]
        behind.sort(key=lambda one: (one.id <= last, one.id))
        left = PIECE_MESSAGES
        found: list[Judged] = []
        for one in behind:
            said, used = self._judge(group, state, one, left, until)
            self._asked_last[group] = one.id
            left -= used
            if said.to > said.after:
                found.append(said)
            if left <= 0 or self._over(until):
                break
        if found:
            proposed.update({said.filter: said.after for said in found})
            self.propose(group, Judge(tuple(found)))
        elif self._begun[group]:
            self._soon(group)
        elif state.filters.search.unfinished:
            self.propose(group, Judge(()))  # an entry with as many steps again

    def _judge(
        self, group: int, state: QueueState, one: Filter, most: int, until: int
    ) -> tuple[Judged, int]:
        """Return what a filter says of the next blocks, and the number of messages looked at."""
        evaluator, begun = _evaluator(one.text), self._begun[group]
        whole: list[int] = []
        parts: list[tuple[int, bytes]] = []
        used, to = 0, state.filters.newest
        before = one.judged
        for index in state.contents.after(one.judged):
            if used >= most or (before > one.judged and self._over(until)):
                to = before
                break
            if (group, index) in self._healing:
                to = before
                break
            try:
                block = self.cluster.stored.read(group, index)
            except EntryDamaged:
                # What follows would be judged first, and its consumer get it before this one.
                self._healing.add((group, index))
                healed = partial(self._healed, group, index)
                self.cluster.host.repair.when(group, index, healed)
                to = before
                break
            except (KeyError, BlockError) as error:
                log.error("entry %d of group %d: no filter can judge it: %s", index, group, error)
                before = index
                continue
            asked = begun.pop(one.id, None)
            if asked is None or asked.index != index:
                asked = _Begun(index)
            first = asked.at
            self._ask(group, evaluator, block, asked, until)
            used += asked.at - first
            if asked.at < block.count:
                begun[one.id] = asked
                to = before
                break
            before = index
            if asked.bits == (1 << block.count) - 1:
                whole.append(index)
            elif asked.bits:
                size = (asked.bits.bit_length() + 7) // 8
                parts.append((index, asked.bits.to_bytes(size, "little")))
        return Judged(one.id, one.judged, to, tuple(whole), tuple(parts)), used

    def _healed(self, group: int, index: int) -> None:
        """Continue after a damaged entry: it is repaired, or not needed any more."""
        self._healing.discard((group, index))
        self._soon(group)

    def _ask(
        self, group: int, evaluator: Evaluator | None, block: Block, asked: _Begun, until: int
    ) -> None:
        """Ask about a block's messages; one that cannot be asked about matches nothing."""
        if evaluator is None:
            asked.at = block.count
            return
        until = max(until, self.cluster.loop.clock.monotonic_ms() + ASKED_MS)

        def over() -> bool:
            return self._over(until)

        while asked.at < block.count:
            where = f"a filter's question about message {asked.at} of entry {asked.index}"
            ask = self.cluster.set_aside.attempt
            if ask(group, where, asked.ask, evaluator, block, over):
                return
            asked.at += 1


@lru_cache(maxsize=256)
def _evaluator(text: bytes) -> Evaluator | None:
    """Return the filter; None: this node does not know it, and nothing matches it."""
    try:
        return Evaluator(decode_filter(text))
    except (FilterRefused, *UNDECODABLE) as error:
        log.error("a consumer's filter cannot be read, so it matches nothing: %s", error)
        return None
