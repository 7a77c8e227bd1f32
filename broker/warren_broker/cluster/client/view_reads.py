"""Read-only requests: what a queue holds, in every state, with the messages themselves.

The leader says what there is; to a browser any member does. The messages are read from this node's
own member where it has them, else from the leader, which leaves out those that have left the queue
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from warren_broker.cluster import messages
from warren_broker.cluster.client.reads import ReadFailed, RemoteReads, Runs
from warren_broker.cluster.cluster import Cluster
from warren_machines.queue.places import BrowsePlace, page_of
from warren_machines.queue.view import ViewTooLarge, edges_of, view_of
from warren_raft.errors import NotLeader, TooManyReads
from warren_raft.runtime.host import UnknownGroup
from warren_raft.storage.errors import EntryDamaged
from warren_wire.block.block import BlockError
from warren_wire.checksum import crc32

Times: TypeAlias = tuple[tuple[int, int], ...]
"""(log index, time of the entry in milliseconds since 1970)."""
TIMES_MAX = 10_000
"""Entries of one answer that has no block."""
CURRENT_MS = 500
"""How long a browser waits for its member to have what was committed when it asked."""


@dataclass(frozen=True, slots=True)
class Kept:
    """Messages that were read: the first `messages` of those asked for, without those gone.

    gone   log indexes of entries that have left the queue
    times  of the messages' entries, if they were asked for
    block  empty if none was asked for
    """

    gone: tuple[int, ...]
    messages: int
    times: Times
    block: bytes


class ViewReads:
    """Questions about what a queue holds, and the answers to those of other nodes."""

    def __init__(self, cluster: Cluster, reads: RemoteReads) -> None:
        self._cluster = cluster
        self._reads = reads
        self._began_ms = cluster.loop.clock.epoch_ms()
        reads.serve(messages.ReadView, self._on_read_view)
        reads.serve(messages.ReadKept, self._on_read_kept)
        cluster.handlers[messages.ViewIs] = reads.answered
        cluster.handlers[messages.KeptIs] = self._on_kept

    # ------------------------------------------------------------ asking

    def view(
        self,
        group: int,
        states: tuple[str, ...],
        first: int,
        last: int,
        count: int,
        pieces: int,
        done: Callable[[messages.ViewIs | ReadFailed], None],
    ) -> None:
        """Ask the leader for rows; with `pieces`: for edges."""
        self._reads.start(done, messages.ReadView, group, states, first, last, count, pieces)

    def when_current(self, group: int, done: Callable[[bool], None]) -> None:
        """Call back when this node's member has all that is committed now, else after CURRENT_MS.

        A member that has just joined has nothing yet, and one that lags shows what has left. The
        leader answers for a node that has none.
        """
        try:
            self._cluster.host.read_index(group, CURRENT_MS, done)
        except UnknownGroup:
            done(True)
        except (NotLeader, TooManyReads):
            done(False)

    def browse(
        self,
        group: int,
        states: tuple[str, ...],
        after: BrowsePlace | None,
        origin: int,
        count: int,
        done: Callable[[messages.ViewIs | ReadFailed], None],
    ) -> None:
        """Find the next messages, in this node's member if it has one, else in the leader's.

        after, origin  the place behind which they are, and the `origin` of the answer it is from
        """
        try:
            found = self._browsed(0, group, states, (after, origin), count)
        except UnknownGroup:
            asked = (states, 0, 0, count, 0, (after, origin))
            self._reads.start(partial(if_browsed, done), messages.ReadView, group, *asked)
            return
        done(found)

    def kept(
        self,
        group: int,
        runs: Runs,
        max_bytes: int,
        times: bool,
        blocks: bool,
        areas: int,
        done: Callable[[Kept | ReadFailed], None],
    ) -> None:
        """Read the first of these messages; times, blocks, areas: what of them."""
        try:
            found: Kept | ReadFailed = self._local(group, runs, max_bytes, times, blocks, areas)
        except (UnknownGroup, KeyError, EntryDamaged):
            wanted = (runs, max_bytes, times, blocks, areas)
            self._reads.start(done, messages.ReadKept, group, *wanted)
            return
        except BlockError as error:
            found = ReadFailed(self._reads.unreadable(group, runs, error), False)
        done(found)

    # ------------------------------------------------------------ answering

    def _local(
        self, group: int, runs: Runs, max_bytes: int, times: bool, blocks: bool, areas: int
    ) -> Kept:
        """Read from this member; raises UnknownGroup, KeyError, EntryDamaged, BlockError."""
        host, applied = self._cluster.host, self._cluster.host.applied_index(group)
        taken, data = 0, b""
        if blocks:
            taken, data = self._reads.local_block(group, runs, max_bytes, areas)
        found: dict[int, int] = {}
        count = 0
        for index, first, last, _, _ in runs:
            if count >= taken if blocks else len(found) >= TIMES_MAX:
                break
            if index > applied:
                raise KeyError(index)
            count += last - first + 1
            if times and index not in found:
                found[index] = host.read_entry(group, index).time_ms
        return Kept((), taken if blocks else count, tuple(found.items()), data)

    def _browsed(
        self,
        request: int,
        group: int,
        states: tuple[str, ...],
        behind: tuple[BrowsePlace | None, int],
        count: int,
    ) -> messages.ViewIs:
        """Return the next messages; raises UnknownGroup."""
        host = self._cluster.host
        state, (after, given) = host.state(group), behind
        # Of this state as it is in memory: one that is restored has other chunks.
        origin = crc32(f"{host.node_id} {self._began_ms} {id(state)}".encode())
        found = page_of(state, frozenset(states), after, count, origin == given)
        return messages.ViewIs(request, (), (), (), found, origin)

    def _on_read_view(self, node: str, message: messages.ReadView) -> None:
        state, request = self._cluster.host.state(message.group), message.request
        wanted = frozenset(message.states)
        try:
            if message.browse is not None:
                group, count = message.group, message.count
                answer = self._browsed(request, group, message.states, message.browse, count)
            elif message.pieces:
                answer = messages.ViewIs(request, (), (), edges_of(state, wanted, message.pieces))
            else:
                names, rows = view_of(state, wanted, message.first, message.last, message.count)
                answer = messages.ViewIs(request, names, rows, ())
        except ViewTooLarge as refused:
            self._reads.say(node, messages.ReadRefused(request, False, str(refused)))
            return
        self._reads.say(node, answer)

    def _on_read_kept(self, node: str, message: messages.ReadKept) -> None:
        host, request, group = self._cluster.host, message.request, message.group
        contents = host.state(group).contents
        indexes = dict.fromkeys(run[0] for run in message.runs)
        gone = tuple(index for index in indexes if not contents.has(index))
        runs = without(message.runs, gone)
        if not runs:
            self._reads.say(node, messages.KeptIs(request, gone, 0, (), 0))
            return
        try:
            found = self._local(
                group, runs, message.max_bytes, message.times, message.blocks, message.areas
            )
        except EntryDamaged as damage:
            again = self._cluster.handlers[messages.ReadKept]
            host.repair.when(group, damage.index, lambda: again(node, message, memoryview(b"")))
            return
        except BlockError as error:
            detail = self._reads.unreadable(group, runs, error)
            self._reads.say(node, messages.ReadRefused(request, False, detail))
            return
        answer = messages.KeptIs(request, gone, found.messages, found.times, len(found.block))
        self._reads.say(node, answer, found.block)

    def _on_kept(self, node: str, message: messages.KeptIs, rest: memoryview) -> None:
        (data,) = messages.cut(rest, (message.length,))
        kept = Kept(message.gone, message.messages, message.times, bytes(data))
        self._reads.finish(message.request, kept)


def if_browsed(
    done: Callable[[messages.ViewIs | ReadFailed], None], found: messages.ViewIs | ReadFailed
) -> None:
    """Call back with a leader's answer to a browser, which one of an earlier version lacks."""
    if isinstance(found, messages.ViewIs) and found.browsed is None:
        found = ReadFailed("the leader's version cannot be browsed: finish the upgrade", True)
    done(found)


def without(runs: Runs, gone: tuple[int, ...]) -> Runs:
    """Return the runs of other entries."""
    return tuple(run for run in runs if run[0] not in gone) if gone else runs
