"""The callbacks of a host to its owner."""

from __future__ import annotations

from warren_raft.machine import Applied, Meta
from warren_raft.runtime.net.handshake import Hello
from warren_raft.types import GroupId, Membership, NodeId, Term


class Observer:
    """Callbacks on the loop's thread, within a turn; they may propose, send and start groups.

    An exception ends the process, because no callback is repeated. What is not overridden does
    nothing, and accepts every node.
    """

    def applied(
        self, group: GroupId, meta: Meta, data: bytes, applied: Applied, leading: bool
    ) -> None:
        """Handle a command that was applied to this member's state, in the order of the log.

        data     the entry's bytes, as proposed
        leading  this node leads the group and has applied its own term's first entry: it carries
                 out `applied.effects`. False on followers, in replay, and for the entries before
                 that one (`became_leader` covers them)
        """

    def leader_changed(
        self, group: GroupId, leader: NodeId | None, term: Term, leading: bool
    ) -> None:
        """Handle a change of the group's leader or term, as this member knows it, or its deletion.

        leading  this node won the election; `became_leader` follows when it has applied. False for
                 a member that is deleted while it leads: it may have no turn in between
        """

    def became_leader(self, group: GroupId, effects: tuple[object, ...]) -> None:
        """Carry out the effects: this node leads and has applied everything before its term."""

    def restored(self, group: GroupId) -> None:
        """Handle a state that was replaced by another member's snapshot, without `applied`."""

    def members_changed(self, group: GroupId, membership: Membership) -> None:
        """Handle an applied (so committed) membership change, on every member, in the log's order.

        Called in replay, too, and after `restored` when the snapshot has other members. The members
        in effect may be newer already (`Host.members`). A node in neither list has left: its member
        may be deleted.
        """

    def disk_full(self, full: bool) -> None:
        """Handle a full disk; False: there is space again and all pending writes are done.

        Meanwhile no message that depends on this node's disk is sent; it continues by itself.
        """

    def judge_peer(self, hello: Hello) -> str | None:
        """Return why an authenticated node is refused; None: it is a peer.

        The reason contains its remedy: it is sent to that node, and logged there. Raises
        NodeRemoved for a node that was removed from the cluster for good: it ends when it is told.
        """
        return None

    def peer_up(self, node: NodeId, boot_id: int) -> None:
        """Handle a new connection; `Host.send` reaches that node from now on.

        Its Hello (address, disk) is `Host.peer_hello`; a node that was unknown until now is a peer
        from now on.
        """

    def peer_down(self, node: NodeId) -> None:
        """Handle a broken connection: messages sent and not answered may be lost."""

    def peer_suspected(self, node: NodeId) -> None:
        """Handle a suspicion: nothing was received for too long."""

    def peer_gone(self, node: NodeId) -> None:
        """Handle the end of a suspected node's process: its port refuses connections.

        Comes after `peer_suspected`, perhaps much later. A firewall that refuses with resets looks
        the same; one that sends ICMP messages does not.
        """

    def peer_back(self, node: NodeId) -> None:
        """Handle the end of a suspicion; the process may be the same or a new one."""

    def peer_restarted(self, node: NodeId, old_boot_id: int, new_boot_id: int) -> None:
        """Handle a new process of a node, before `peer_up`: the old one's memory is lost."""
