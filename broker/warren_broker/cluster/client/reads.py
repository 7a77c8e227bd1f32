"""Read-only requests: the messages of a claim, the ready messages, counts.

A read is answered from this node's own member when that has applied enough, otherwise by the
leader; without a leader it is repeated until its deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, TypeAlias

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.request_timeouts import RequestTimeouts
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.claims import claim as queue_claim
from warren_machines.queue.codec import block_offset
from warren_machines.queue.commands import StatReply
from warren_machines.queue.delayed.delayed_queue import Delayed, DelayedRow
from warren_machines.queue.ready.ready_queue import Order
from warren_machines.queue.view import sinks_of
from warren_machines.queue.whole_queue import counts
from warren_raft.runtime.host import UnknownGroup
from warren_raft.storage.errors import EntryDamaged
from warren_wire.block.block import AREAS, BLOCK_MESSAGES_MAX, Block, BlockError
from warren_wire.kernel import join

Runs: TypeAlias = tuple[tuple[int, int, int, int, int], ...]
"""(index, first, last, delivery_count, acquired_count), closed ranges, in order."""
DelayedRows: TypeAlias = tuple[DelayedRow, ...]
_Part: TypeAlias = tuple[bytes | memoryview, int, int, int]
"""(buffer, start, first, last) of a block, see `kernel.join`."""
READ_RETRY_MS = 100
FETCH_BYTES_MAX = 16 << 20
READ_BLOCKS_MAX = 4_000
"""Blocks that one read takes messages from: each costs some 3 µs, in which the node does nothing
else, and a queue that is published to one by one has as many blocks as messages."""


@dataclass(frozen=True, slots=True)
class ReadFailed:
    """A failed read; unavailable: no member could be asked, or the queue was deleted."""

    detail: str
    unavailable: bool


Done: TypeAlias = Callable[[Any], None]
_DELETED: Final = ReadFailed("the queue was deleted", True)


@dataclass(slots=True)
class _Pending:
    """A read without an answer, and its question."""

    group: int
    question: Any
    done: Done
    asked: str | None = None


class RemoteReads:
    """Questions to other members and answers to theirs.

    Invariants: a pending read either has been sent somewhere or is scheduled; `_of_group` holds
    exactly the pending ones, by group; their groups are defined.
    """

    def __init__(self, cluster: Cluster, definitions: Definitions, timeout_ms: int) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._timeouts = RequestTimeouts(cluster.loop, timeout_ms)
        self._pending: dict[int, _Pending] = {}
        # 1. Every queue of thousands is asked for its counts.  2. All their leaders change.
        # 3. Without this index each change would scan all pending reads: minutes of work.
        self._of_group: dict[int, dict[int, _Pending]] = {}
        cluster.on_peer_down.append(self._peer_down)
        cluster.on_leader.append(self._new_leader)
        definitions.on_deleted.append(self._deleted)
        self.serve(messages.ReadRuns, self._on_read_runs)
        self.serve(messages.ReadDelayed, self._on_read_delayed)
        self.serve(messages.ReadSinks, self._on_read_sinks)
        self.serve(messages.QueueCounts, self._on_counts)
        cluster.handlers.update(
            {
                messages.RunsAre: self._on_rows,
                messages.DelayedAre: self._on_rows,
                messages.SinksAre: self.answered,
                messages.ReadBlock: self._on_read_block,
                messages.BlockIs: self._on_block,
                messages.ReadRefused: self._on_refused,
                messages.CountsAre: self._on_counts_are,
            }
        )

    # ------------------------------------------------------------ asking

    def runs(
        self,
        group: int,
        reader: str,
        number: int,
        first: int,
        last: int,
        done: Callable[[Runs | ReadFailed], None],
    ) -> None:
        """Find the messages of a slice of a claim; with an empty reader: the ready messages."""
        try:
            if reader or self._cluster.host.is_leader(group):
                found = self._local_runs(group, reader, number, first, last)
                if found is not None:
                    done(found)
                    return
        except UnknownGroup:
            pass
        self.start(done, messages.ReadRuns, group, reader, number, first, last)

    def block(
        self,
        group: int,
        runs: Runs,
        max_bytes: int,
        done: Callable[[tuple[int, bytes] | ReadFailed], None],
        areas: int = AREAS,
    ) -> None:
        """Read the first messages of `runs` as one block: their number, and its bytes."""
        try:
            found: tuple[int, bytes] | ReadFailed = self.local_block(group, runs, max_bytes, areas)
        except (UnknownGroup, KeyError, EntryDamaged):
            # One that is damaged here: the leader has it, or waits until it has been repaired.
            self.start(done, messages.ReadBlock, group, runs, max_bytes, areas)
            return
        except BlockError as error:
            found = ReadFailed(self.unreadable(group, runs, error), False)
        done(found)

    def counts(self, group: int, done: Callable[[StatReply | ReadFailed], None]) -> None:
        """Read a leader's counts, as of now or a moment ago."""
        host = self._cluster.host
        if host.is_leader(group):
            done(counts(host.state(group), host.time_ms(group)))
            return
        self.start(done, messages.QueueCounts, group)

    def delayed(
        self, group: int, count: int, done: Callable[[DelayedRows | ReadFailed], None]
    ) -> None:
        """Find the delayed messages that are ready first, at most `count`."""
        if self._cluster.host.is_leader(group):
            done(delayed_rows(self._cluster.host.state(group).delayed, count))
            return
        self.start(done, messages.ReadDelayed, group, count)

    def sinks(
        self,
        group: int,
        sink: str,
        run: str,
        count: int,
        done: Callable[[messages.SinksAre | ReadFailed], None],
    ) -> None:
        """Ask the leader for at most `count` runs of sinks; see `queue.view.sinks_of`."""
        self.start(done, messages.ReadSinks, group, sink, run, count)

    def start(self, done: Done, question: Callable[..., Any], group: int, *values: Any) -> None:
        """Ask the leader of a group, again and again until it answers or the time is over.

        question  its type, of which `values` are the fields after the group

        A queue that is deleted has none, and no answer: 1. A declaration finds a queue, and its
        messages are counted.  2. Another client deletes it.  3. The first one waited until the time
        was over, and was told that members are out of reach.
        Replayed by tests/broker/cluster/client/test_deleted_queues.py
        """
        if group not in self._definitions.state.groups:
            done(_DELETED)
            return
        request = self._timeouts.add(lambda: self._give_up(request))
        asked = question(request, group, *values)
        pending = self._pending[request] = _Pending(group, asked, done)
        self._of_group.setdefault(group, {})[request] = pending
        self._try(request)

    def _take(self, request: int) -> _Pending | None:
        pending = self._pending.pop(request, None)
        if pending is not None:
            alike = self._of_group[pending.group]
            del alike[request]
            if not alike:
                del self._of_group[pending.group]
        return pending

    def _give_up(self, request: int) -> None:
        pending = self._take(request)
        assert pending is not None, request
        client = self._cluster.client(pending.group)
        away = self._cluster.lost_majority(client.members if client is not None else ())
        text = f"no leader answered within {self._timeouts.timeout_ms} ms: {away}"
        pending.done(ReadFailed(text, True))

    def _deleted(self, queue: QueueRecord) -> None:
        for request in list(self._of_group.get(queue.group, {})):
            self.finish(request, _DELETED)

    def give_up(self, group: int) -> None:
        """Fail the reads of a group because its only node is unreachable."""
        for request in list(self._of_group.get(group, {})):
            self._timeouts.answered(request)
            self._give_up(request)

    def _try(self, request: int) -> None:
        pending = self._pending.get(request)
        if pending is None or pending.asked is not None:
            return
        cluster = self._cluster
        leader = cluster.leader_of(pending.group)
        if leader == cluster.host.node_id:
            self._answer_here(pending)
            return
        if leader is not None and cluster.host.send(leader, messages.encode(pending.question)):
            pending.asked = leader
            return
        client = cluster.client(pending.group)
        if client is not None:
            cluster.seek(client)
        else:
            cluster.ask_who_leads(pending.group)
        cluster.loop.call_later(READ_RETRY_MS, lambda: self._try(request))

    def _answer_here(self, pending: _Pending) -> None:
        # The leadership came to this node while the read was waiting.
        handler = self._cluster.handlers[type(pending.question)]
        pending.asked = self._cluster.host.node_id
        handler(self._cluster.host.node_id, pending.question, memoryview(b""))

    def finish(self, request: int, result: object) -> None:
        """Hand an answer to its question."""
        pending = self._take(request)
        if pending is not None:
            self._timeouts.answered(request)
            pending.done(result)

    def answered(self, node: str, message: messages.Numbered, rest: memoryview) -> None:
        """Hand an answer to its question as it came."""
        self.finish(message.request, message)

    def _on_rows(
        self, node: str, message: messages.RunsAre | messages.DelayedAre, rest: memoryview
    ) -> None:
        self.finish(message.request, message.rows)

    def _on_counts_are(self, node: str, message: messages.CountsAre, rest: memoryview) -> None:
        pending = self._pending.get(message.request)
        if pending is not None:
            self._cluster.set_aside.learn(pending.group, message.set_aside)
        self.finish(message.request, message.stat)

    def _on_block(self, node: str, message: messages.BlockIs, rest: memoryview) -> None:
        (data,) = messages.cut(rest, (message.length,))
        self.finish(message.request, (message.messages, bytes(data)))

    def _on_refused(self, node: str, message: messages.ReadRefused, rest: memoryview) -> None:
        if not message.retry:
            self.finish(message.request, ReadFailed(message.detail, False))
            return
        pending = self._pending.get(message.request)
        if pending is not None:
            self._cluster.leader_hints.deny(pending.group, node)
            self._again(message.request, pending)

    def _peer_down(self, node: str) -> None:
        for request, pending in self._pending.items():
            if pending.asked == node:
                self._again(request, pending)

    def _new_leader(self, group: int) -> None:
        # The node that was asked may be paused or cut off: it would answer late, or never.
        for request, pending in self._of_group.get(group, {}).items():
            if pending.asked is not None:
                self._again(request, pending)

    def _again(self, request: int, pending: _Pending) -> None:
        pending.asked = None
        self._cluster.loop.call_later(READ_RETRY_MS, lambda: self._try(request))

    # ------------------------------------------------------------ answering

    def say(self, node: str, message: Any, *blobs: bytes) -> None:
        """Answer a node, perhaps this one."""
        if node == self._cluster.host.node_id:
            rest = memoryview(b"".join(blobs))
            self._cluster.handlers[type(message)](node, message, rest)
        else:
            self._cluster.host.send(node, messages.encode(message, *blobs))

    def serve(self, question: type, answer: Callable[[str, Any], None]) -> None:
        """Answer questions of that type about the groups that this node leads."""

        def asked(node: str, message: Any, rest: memoryview) -> None:
            if self._cluster.host.is_leader(message.group):
                answer(node, message)
            else:
                self.say(node, messages.ReadRefused(message.request, True, "not the leader"))

        self._cluster.handlers[question] = asked

    def _local_runs(
        self, group: int, reader: str, number: int, first: int, last: int
    ) -> Runs | None:
        state = self._cluster.host.state(group)
        if not reader:
            return ready_runs(state.order, last)
        return queue_claim.claim_slice(state, reader, number, first, last, READ_BLOCKS_MAX)

    def _on_read_runs(self, node: str, message: messages.ReadRuns) -> None:
        found = self._local_runs(
            message.group, message.reader, message.number, message.first, message.last
        )
        if found is None:
            detail = (
                f"claim {message.number} of reader {message.reader!r} is not open: it was settled, "
                "released or has expired"
            )
            self.say(node, messages.ReadRefused(message.request, False, detail))
        else:
            self.say(node, messages.RunsAre(message.request, found))

    def _on_read_delayed(self, node: str, message: messages.ReadDelayed) -> None:
        rows = delayed_rows(self._cluster.host.state(message.group).delayed, message.count)
        self.say(node, messages.DelayedAre(message.request, rows))

    def _on_read_sinks(self, node: str, message: messages.ReadSinks) -> None:
        host, group = self._cluster.host, message.group
        found = sinks_of(host.state(group), message.sink, message.run, message.count)
        self.say(node, messages.SinksAre(message.request, *found, host.time_ms(group)))

    def local_block(
        self, group: int, runs: Runs, max_bytes: int, areas: int = AREAS
    ) -> tuple[int, bytes]:
        """Read the first messages of `runs` from this member.

        It ends at FETCH_BYTES_MAX and READ_BLOCKS_MAX, and before an entry that cannot be read: the
        caller asks for the rest again. The errors are those of the first entry.

        raises  UnknownGroup; KeyError: it is not here; EntryDamaged; BlockError: no member reads it

        1. This member was a leader, and appended entry 7.  2. Another leader was elected without
        it, and committed another entry 7.  3. Runs that name entry 7 come from the new leader
        before this member hears of it. So only entries that were applied here are read.
        """
        applied = self._cluster.host.applied_index(group)
        indexes = [
            run[0] for run in takewhile(lambda run: run[0] <= applied, runs[:READ_BLOCKS_MAX])
        ]
        if not indexes:
            raise KeyError(runs[0][0])
        parts: list[_Part] = []
        taken = 0
        try:
            found = self._cluster.stored.entries(group, indexes)
            taken = _gather(runs, found, min(max_bytes, FETCH_BYTES_MAX), parts)
        except (KeyError, EntryDamaged, BlockError):
            if not parts:
                raise
            taken = sum(last - first for _, _, first, last in parts)
        try:
            return taken, join(parts, areas)
        except BlockError:
            if len(parts) == 1:
                raise
        # One of them cannot be read: those before it are, one by one, and then it is the first.
        return self.local_block(group, runs[:1], max_bytes, areas)

    def unreadable(self, group: int, runs: Runs, error: BlockError) -> str:
        """Log the unreadable block of the first entry, and return the text for the client."""
        entry = f"entry {runs[0][0]}"
        self._cluster.set_aside.note(group, f"a read of {entry}", str(error))
        return f"queue {self._cluster.set_aside.name(group)}: {entry} cannot be read: {error}"

    def _on_read_block(self, node: str, message: messages.ReadBlock, rest: memoryview) -> None:
        request = message.request
        try:
            taken, data = self.local_block(
                message.group, message.runs, message.max_bytes, message.areas
            )
        except (UnknownGroup, KeyError):
            self.say(node, messages.ReadRefused(request, True, "not held here"))
            return
        except EntryDamaged as damage:
            self._cluster.host.repair.when(
                message.group, damage.index, lambda: self._on_read_block(node, message, rest)
            )
            return
        except BlockError as error:
            detail = self.unreadable(message.group, message.runs, error)
            self.say(node, messages.ReadRefused(request, False, detail))
            return
        self.say(node, messages.BlockIs(message.request, taken, len(data)), data)

    def _on_counts(self, node: str, message: messages.QueueCounts) -> None:
        host = self._cluster.host
        stat = counts(host.state(message.group), host.time_ms(message.group))
        aside = self._cluster.set_aside.count(message.group)
        self.say(node, messages.CountsAre(message.request, stat, aside))


def delayed_rows(delayed: Delayed, count_max: int) -> DelayedRows:
    """Return the delayed messages that are ready first."""
    found: list[DelayedRow] = []
    left = count_max
    for ready_ms, index, first, last, failed, acquired in delayed:
        if left <= 0:
            break
        last = min(last, first + left - 1)
        left -= last - first + 1
        found.append((ready_ms, index, first, last, failed, acquired))
    return tuple(found)


def ready_runs(order: Order, count_max: int) -> Runs:
    """Return the first ready messages in delivery order, without changing their state."""
    found: list[tuple[int, int, int, int, int]] = []
    left = count_max
    for index, first, last, failed, acquired in order:
        if left <= 0:
            break
        last = min(last, first + left - 1)
        left -= last - first + 1
        found.append((index, first, last, failed, acquired))
    return tuple(found)


def cut_runs(runs: Runs, count: int) -> tuple[Runs, Runs]:
    """Return the first `count` messages, and the others."""
    taken = []
    for position, (index, first, last, failed, acquired) in enumerate(runs):
        size = last - first + 1
        if count < size:
            if count:
                taken.append((index, first, first + count - 1, failed, acquired))
            rest = ((index, first + count, last, failed, acquired), *runs[position + 1 :])
            return tuple(taken), rest
        taken.append((index, first, last, failed, acquired))
        count -= size
    return tuple(taken), ()


def _gather(runs: Runs, found: Iterator[Block | bytes], bytes_max: int, parts: list[_Part]) -> int:
    """Add the first messages of `runs` to `parts`; return their number.

    found  the blocks of the runs, as far as they are read; see `BlockCache.entries`
    """
    taken = size = 0
    for (_, first, last, _, _), block in zip(runs, found, strict=False):
        fitting = min(last, first + BLOCK_MESSAGES_MAX - taken - 1)
        if isinstance(block, Block):
            end = _fitting(block, first, fitting, bytes_max - size)
        else:
            end = fitting if size + len(block) <= bytes_max else first - 1
        if end < first and parts:
            break
        end = max(end, first)  # one message is read even when it is larger
        if isinstance(block, Block):
            parts.append((block.buffer, 0, first, end + 1))
            size += block.size_bytes(first, end + 1)
        else:
            parts.append((block, block_offset(block), first, end + 1))
            size += len(block)
        taken += end - first + 1
        if end < last:
            break
    return taken


def _fitting(block: Block, first: int, last: int, limit: int) -> int:
    """Return the last message up to which the range fits into `limit` bytes; first - 1: none."""
    if block.size_bytes(first, last + 1) <= limit:
        return last
    low, high = first - 1, last
    while low < high:
        middle = (low + high + 1) // 2
        if block.size_bytes(first, middle + 1) <= limit:
            low = middle
        else:
            high = middle - 1
    return low
