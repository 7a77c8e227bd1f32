"""What a host tells its owner."""

from __future__ import annotations

from typing import Any, Protocol

from warren_raft.machine import Applied, Meta
from warren_raft.types import GroupId, Membership, NodeId, Term


class Observer(Protocol):
    """Called on the loop's thread, within a turn; a call may propose, send and start groups.

    An exception ends the process: what the observer was told cannot be told again.
    """

    def applied(
        self, group: GroupId, meta: Meta, data: bytes, applied: Applied, leading: bool
    ) -> None:
        """A command was applied to this member's state, in the order of the log.

        data     the entry's bytes, as proposed
        leading  this node leads the group and has applied its own term's first entry: it carries
                 out `applied.effects`. False on followers, in replay, and for the entries before
                 that one (`became_leader` makes up for them)
        """
        ...

    def leader_changed(
        self, group: GroupId, leader: NodeId | None, term: Term, leading: bool
    ) -> None:
        """The group has another leader or term, as far as this member knows.

        leading  this node won the election; `became_leader` follows when it has applied
        """
        ...

    def became_leader(self, group: GroupId, effects: tuple[Any, ...]) -> None:
        """This node leads and has applied everything before its term; carry these out."""
        ...

    def restored(self, group: GroupId) -> None:
        """The group's state is another member's snapshot now: what led to it is not told."""
        ...

    def members_changed(self, group: GroupId, membership: Membership) -> None:
        """A change of members was applied (it is committed); told on every member, in the log's
        order, in replay, and after `restored` when the snapshot brought other members.

        The members in effect may be newer already (`Host.members`). A node that is in neither
        list any more has left: its member may be deleted.
        """
        ...

    def disk_full(self, full: bool) -> None:
        """There is no space for what is to be written; False: there is again, all was written.

        Meanwhile nothing leaves that rests on this node's disk; it continues by itself.
        """
        ...

    def peer_up(self, node: NodeId, boot_id: int) -> None:
        """A connection with that node stands; `Host.send` reaches it from now on.

        What it said of itself (address, disk) is `Host.peer_hello`; a node that was unknown so
        far is a peer from now on.
        """
        ...

    def peer_down(self, node: NodeId) -> None:
        """The connection broke: what was sent and not answered may have been lost."""
        ...

    def peer_suspected(self, node: NodeId) -> None:
        """No sign of life for too long."""
        ...

    def peer_gone(self, node: NodeId) -> None:
        """The machine of a suspected node says that nothing listens there: its process has ended.

        Comes after `peer_suspected`, perhaps much later. A firewall that refuses connections looks
        the same.
        """
        ...

    def peer_back(self, node: NodeId) -> None:
        """A suspected node was heard again, in the same or in another life."""
        ...

    def peer_restarted(self, node: NodeId, old_boot_id: int, new_boot_id: int) -> None:
        """Another life of that node: what the old one held is gone. Comes before `peer_up`."""
        ...


class NullObserver:
    """An observer to inherit from: hears everything, does nothing."""

    def applied(
        self, group: GroupId, meta: Meta, data: bytes, applied: Applied, leading: bool
    ) -> None:
        """Nothing."""

    def leader_changed(
        self, group: GroupId, leader: NodeId | None, term: Term, leading: bool
    ) -> None:
        """Nothing."""

    def became_leader(self, group: GroupId, effects: tuple[Any, ...]) -> None:
        """Nothing."""

    def restored(self, group: GroupId) -> None:
        """Nothing."""

    def members_changed(self, group: GroupId, membership: Membership) -> None:
        """Nothing."""

    def disk_full(self, full: bool) -> None:
        """Nothing."""

    def peer_up(self, node: NodeId, boot_id: int) -> None:
        """Nothing."""

    def peer_down(self, node: NodeId) -> None:
        """Nothing."""

    def peer_suspected(self, node: NodeId) -> None:
        """Nothing."""

    def peer_gone(self, node: NodeId) -> None:
        """Nothing."""

    def peer_back(self, node: NodeId) -> None:
        """Nothing."""

    def peer_restarted(self, node: NodeId, old_boot_id: int, new_boot_id: int) -> None:
        """Nothing."""
