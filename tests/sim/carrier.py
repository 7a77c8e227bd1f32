"""Snapshots of one simulated member: taken, sent, received, installed."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import msgspec

from sim.disk import Kept
from warren_raft.core.membership import decode, encode
from warren_raft.core.snapshot_transfer import Incoming, OutgoingSnapshot
from warren_raft.messages import SnapshotChunk, SnapshotWanted
from warren_raft.types import Entry, Index, NodeId

if TYPE_CHECKING:
    from sim.member import Member

REPEAT_MS = 400
"""An offer without an answer is repeated after that long."""


def no_live(index: Index) -> Entry:
    """Fail, because the ledger refers to no live entries."""
    raise AssertionError(index)


class Carrier:
    """A member's snapshot handling in one process; its state is lost with the process."""

    def __init__(self, member: Member, group: int) -> None:
        self.member = member
        self.group = group
        self.outgoing: dict[NodeId, OutgoingSnapshot] = {}
        self.incoming: Incoming | None = None

    def take(self) -> None:
        """Take a snapshot when enough was applied, and release the log that it replaces."""
        member, node = self.member, self.member.node
        assert node is not None
        every = member.world.profile.snapshot_every
        safe = member.disk.safe
        index = node.applied
        if not every or self.outgoing or index - member.snapshot_index < every:
            return
        members = node.membership_at(index)
        if members is None or node.log.durable < index:
            return  # the membership is not known, or not all of it is on disk
        member.world.checkers.configurations.snapshot(member, index, members)
        state = member.world.machine.save(member.state)
        safe.drop_to(index)
        kept = Kept(index, safe.base_term, safe.base_time_ms, members, state)
        member.disk.snapshot = kept
        member.snapshot_index = index

    # ------------------------------------------------------------------ sending

    def send_to(self, to: NodeId) -> None:
        """Send a snapshot to a member that the core names."""
        kept = self.member.disk.snapshot
        assert kept is not None
        payload = msgspec.msgpack.encode((kept.time_ms, encode(kept.membership), kept.state))
        self.outgoing[to] = OutgoingSnapshot(
            self.group,
            self.member.name,
            to,
            kept.index,
            kept.term,
            array("Q"),
            payload,
            no_live,
            self.member.now(),
        )
        self.offer(self.member.life, to, self.outgoing[to])

    def offer(self, life: int, to: NodeId, sending: OutgoingSnapshot) -> None:
        """Repeat the offer until the member holds the snapshot or no longer needs it."""
        member, node = self.member, self.member.node
        if life != member.life or node is None or self.outgoing.get(to) is not sending:
            return
        if not node.wants_snapshot(to):
            del self.outgoing[to]
            return
        member.send((sending.offer(node.term),))
        member.world.agenda.after(REPEAT_MS, self.offer, life, to, sending)

    # ------------------------------------------------------------------ receiving

    def take_chunk(self, chunk: SnapshotChunk | SnapshotWanted) -> None:
        """Handle a part of a snapshot, or a request for one, from the core."""
        member, node = self.member, self.member.node
        assert node is not None
        if isinstance(chunk, SnapshotWanted):
            sending = self.outgoing.get(chunk.sender)
            if sending is not None and node.wants_snapshot(chunk.sender):
                sending.heard(chunk, member.now())
                while (part := sending.next(node.term)) is not None:
                    member.send((part,))
            return
        if self.incoming is None or not self.incoming.is_of(chunk):
            self.incoming = Incoming(chunk, node.applied)
        coming = self.incoming
        _, repeat = coming.take(chunk)
        if coming.complete and not repeat:
            self.install_later(coming, node.log.sequence)
        wanted = SnapshotWanted(
            self.group,
            member.name,
            chunk.sender,
            node.term,
            coming.index,
            coming.term,
            coming.live_after,
            len(coming.payload),
            repeat,
        )
        member.send((wanted,))

    def install_later(self, coming: Incoming, after: int) -> None:
        """Write the snapshot after all earlier writes.

        1. A leader of term 2 sends a snapshot that ends in term 2.  2. It is on disk, this member's
        new term is not.  3. It crashes: the log would end in a term that this member was never in.
        """
        member = self.member
        member.world.agenda.after(member.sync_ms(), self.install, member.life, coming, after)

    def install(self, life: int, coming: Incoming, after: int) -> None:
        """Continue after the durable snapshot, unless the log has caught up by itself."""
        member, node = self.member, self.member.node
        if life != member.life or node is None or self.incoming is not coming:
            return
        if member.later(self.install, life, coming, after):
            return
        if node.synced < after:
            self.install_later(coming, after)
            return
        self.incoming = None
        if not node.may_install(coming.index, coming.term):
            return
        time_ms, members, state = msgspec.msgpack.decode(
            bytes(coming.payload), type=tuple[int, bytes, bytes]
        )
        kept = Kept(coming.index, coming.term, time_ms, decode(members), state)
        node.installed(kept.index, kept.term, kept.time_ms, kept.membership)
        member.disk.install(kept)
        member.begin_after(kept)
        member.world.note("installed", member.name, kept.index)
        member.touch()
