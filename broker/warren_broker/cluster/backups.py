"""What a backup reads of this node's groups, and of those of other nodes.

A group's snapshot is held at a member (`HeldSnapshots`) while its bytes are read, each time as many
as one turn may take. The reader steers everything: nothing is sent that was not asked for.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

import msgspec

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.survey import Answers, Survey
from warren_raft.errors import NotLeader
from warren_raft.runtime.held_snapshots import HeldSnapshot
from warren_raft.runtime.host import UnknownGroup
from warren_raft.runtime.loop import LoopTimer
from warren_raft.storage import snapshot as snapshot_file
from warren_raft.storage.errors import EntryDamaged
from warren_raft.types import METADATA_GROUP
from warren_wire.admin.backups import QueueRow
from warren_wire.backups.entries import encode_entry

HELD_MAX: Final = 16
"""Snapshots that a node holds at once; each is in memory."""
HELD_IDLE_MS: Final = 60_000
PIECE_BYTES_MAX: Final = 1 << 20
PIECE_ENTRIES_MAX: Final = 2_000
"""Entries that one read takes: each costs some microseconds."""
PIECE_INDEXES_MAX: Final = 8_192
Read: TypeAlias = messages.HeldIs
_INDEX: Final = struct.Struct("<Q")
HeldDone: TypeAlias = Callable[[str, messages.GroupHeld], None]
"""Called with the node that holds it, or was asked to."""


@dataclass(eq=False, repr=False)
class _Held:
    """A held snapshot and its bytes.

    parts  those that are read by bytes
    entry  the last record that was read in part, with its index
    """

    snapshot: HeldSnapshot
    parts: dict[str, bytes]
    timer: LoopTimer
    entry: tuple[int, bytes] = field(default=(0, b""))


class Backups:
    """Snapshots that this node holds, and questions for those of other nodes."""

    def __init__(self, cluster: Cluster, definitions: Definitions, timeout_ms: int) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._timeout_ms = timeout_ms
        self._numbers = Random()
        self._held: dict[int, _Held] = {}
        self._holding = Survey(cluster, messages.HoldGroup, messages.GroupHeld, timeout_ms)
        self._reading = Survey(cluster, messages.ReadHeld, messages.HeldIs, timeout_ms)
        cluster.handlers[messages.HoldGroup] = self._on_hold
        cluster.handlers[messages.ReadHeld] = self._on_read
        cluster.handlers[messages.ReleaseHeld] = self._on_release

    # ------------------------------------------------------------ asking

    def hold(self, group: int, done: HeldDone) -> None:
        """Have a member hold the group's state, with all that was confirmed before this call."""
        own = self._cluster.host.node_id
        asked = self._member(group)
        if asked == own:
            self._hold_here(0, group, lambda held: done(own, held))
            return

        def told(answers: Answers) -> None:
            no = messages.GroupHeld(0, detail=f"no member of group {group} has answered")
            done(asked, answers.get(asked, no))

        self._holding.ask([asked] if asked else [], told, group)

    def _member(self, group: int) -> str:
        """Return this node if it is a member, else one that is within reach; "": none is."""
        cluster = self._cluster
        host = cluster.host
        if group in host.groups():
            return host.node_id
        queue = self._definitions.state.groups.get(group)
        leader = cluster.leader_of(group)
        members = queue.nodes if queue is not None else ()
        for node in (leader, *members):
            if node is not None and host.connected(node) and not host.suspected(node):
                return node
        return ""

    def read(
        self,
        node: str,
        hold: int,
        part: str,
        position: int,
        offset: int,
        done: Callable[[Read], None],
    ) -> None:
        """Read some bytes of what a node holds."""
        question = messages.ReadHeld(0, hold, part, position, offset)
        if node == self._cluster.host.node_id:
            done(self._read_here(question))
            return
        silent = messages.HeldIs(0, detail=f"node {node!r} does not answer")
        self._reading.ask(
            [node], lambda answers: done(answers.get(node, silent)), hold, part, position, offset
        )

    def release(self, node: str, hold: int) -> None:
        """Release what a node holds; it does so by itself if this does not arrive."""
        if node == self._cluster.host.node_id:
            self._release_here(hold)
        else:
            self._cluster.host.send(node, messages.encode(messages.ReleaseHeld(hold)))

    # ------------------------------------------------------------ answering

    def _on_hold(self, node: str, message: messages.HoldGroup, rest: memoryview) -> None:
        self._hold_here(
            message.request,
            message.group,
            lambda held: self._cluster.host.send(node, messages.encode(held)),
        )

    def _hold_here(
        self, request: int, group: int, done: Callable[[messages.GroupHeld], object]
    ) -> None:
        host = self._cluster.host

        def refuse(why: str) -> None:
            done(messages.GroupHeld(request, detail=why))

        def current(known: bool) -> None:
            if not known:
                refuse(f"the leader of group {group} does not answer")
                return
            try:
                done(self._held_now(request, group))
            except UnknownGroup:
                refuse(f"group {group} is not on node {host.node_id!r} any more")

        # 1. A client's message is confirmed.  2. A backup begins, at a follower that has not
        # applied it yet.  3. Without this question the message would not be in the backup.
        try:
            host.read_index(group, self._timeout_ms // 2, current)
        except (NotLeader, UnknownGroup) as error:
            refuse(str(error))

    def _held_now(self, request: int, group: int) -> messages.GroupHeld:
        host = self._cluster.host
        if len(self._held) >= HELD_MAX:
            why = f"{HELD_MAX} snapshots are held on node {host.node_id!r} for backups already"
            return messages.GroupHeld(request, detail=why)
        held = host.hold_snapshot(group)
        if held is None:
            why = f"group {group} is in memory only, or joins"
            return messages.GroupHeld(request, detail=why)
        snapshot = held.snapshot
        parts = {"snapshot": snapshot_file.encode(snapshot)}
        if group == METADATA_GROUP:
            parts["queues"] = self._queues()
        number = self._numbers.getrandbits(62)
        self._held[number] = _Held(held, parts, self._timer(number))
        members = (*snapshot.voters, *snapshot.learners)
        return messages.GroupHeld(
            request, number, snapshot.index, snapshot.term, snapshot.time_ms, members
        )

    def _queues(self) -> bytes:
        """Return what the definitions say of queues, as of this moment."""
        config = self._definitions.config
        return msgspec.msgpack.encode(
            [
                QueueRow(
                    one.vhost,
                    one.name,
                    one.group,
                    one.replicable,
                    config(one).dead_letter_exchange is not None,
                )
                for one in self._definitions.state.groups.values()
            ]
        )

    def _on_read(self, node: str, message: messages.ReadHeld, rest: memoryview) -> None:
        self._cluster.host.send(node, messages.encode(self._read_here(message)))

    def _read_here(self, wanted: messages.ReadHeld) -> Read:
        held = self._held.get(wanted.hold)
        if held is None or held.snapshot.released:
            self._release_here(wanted.hold)
            why = "the snapshot is held no more: it was idle, its node restarted or its disk is low"
            return messages.HeldIs(wanted.request, detail=why, gone=True)
        held.timer.cancel()
        held.timer = self._timer(wanted.hold)
        try:
            if wanted.part == "entries":
                return _entries(held, wanted)
            if wanted.part == "live":
                return _live(held, wanted)
        except EntryDamaged as damage:
            why = f"entry {damage.index} is damaged on this node, and is being repaired"
            return messages.HeldIs(wanted.request, detail=why)
        except KeyError:  # another member's snapshot has replaced this one's log
            self._release_here(wanted.hold)
            return messages.HeldIs(wanted.request, detail="the log was replaced", gone=True)
        whole = held.parts.get(wanted.part, b"")
        end = wanted.position + PIECE_BYTES_MAX
        data = whole[wanted.position : end]
        return messages.HeldIs(
            wanted.request, data, wanted.position + len(data), 0, end < len(whole)
        )

    def _on_release(self, node: str, message: messages.ReleaseHeld, rest: memoryview) -> None:
        self._release_here(message.hold)

    def _timer(self, hold: int) -> LoopTimer:
        return self._cluster.loop.call_later(HELD_IDLE_MS, lambda: self._release_here(hold))

    def _release_here(self, hold: int) -> None:
        held = self._held.pop(hold, None)
        if held is not None:
            held.timer.cancel()
            self._cluster.host.release_snapshot(held.snapshot)


def _entries(held: _Held, wanted: messages.ReadHeld) -> Read:
    """Return the next records: whole ones, or a part of one that is larger than a piece."""
    live, position, offset = held.snapshot.live, wanted.position, wanted.offset
    at = bisect_right(live, position)
    found: list[bytes] = []
    size = 0
    while at < len(live) and len(found) < PIECE_ENTRIES_MAX:
        index = live[at]
        if held.entry[0] != index:
            entry = held.snapshot.read(index)
            record = encode_entry(index, entry.term, entry.kind, entry.time_ms, entry.data)
            held.entry = index, record
        record = held.entry[1]
        if len(record) - offset > PIECE_BYTES_MAX:
            if not found:
                end = offset + PIECE_BYTES_MAX
                return messages.HeldIs(wanted.request, record[offset:end], position, end, True)
            break
        if found and size + len(record) > PIECE_BYTES_MAX:
            break
        found.append(record[offset:])
        size += len(record) - offset
        offset, position, at = 0, index, at + 1
    return messages.HeldIs(wanted.request, b"".join(found), position, 0, at < len(live))


def _live(held: _Held, wanted: messages.ReadHeld) -> Read:
    """Return the next indexes of the entries."""
    live, at = held.snapshot.live, wanted.position // _INDEX.size
    found = live[at : at + PIECE_INDEXES_MAX]
    end = at + len(found)
    data = b"".join(map(_INDEX.pack, found))
    return messages.HeldIs(wanted.request, data, end * _INDEX.size, 0, end < len(live))
