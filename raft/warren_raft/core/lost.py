"""A committed entry that this member cannot read, and that the others have released.

1. a, b, c hold 1 … 65 on their disks; a has applied 4 and stops.  2. b and c apply 65, take a
snapshot of it and release what is below: they know that a holds it.  3. Entry 5 is damaged on a.
4. a starts. No member can send it 5, and the leader appends what follows 65: a would never apply
again.

So it asks its leader for the snapshot. What the log holds after the snapshot's last entry
stays: this member has acknowledged it. A leader that lacks an entry transfers its leadership, and
then asks its successor.

An entry that is not committed may be on one disk only. 1. a leads, has 24 … 48 on its disk, has
sent none of them, and crashes.  2. Entry 24 is damaged.  3. a starts, has the longest log, and is
elected: it can never send 24, nor what follows. So it has another voter stand once a majority lacks
24: those elect one of them, and 24 is replaced.
"""

from __future__ import annotations

from warren_raft.core import leader_transfer, membership_change
from warren_raft.core.quorum import majority
from warren_raft.core.role_state import Leadership
from warren_raft.core.state import NodeState
from warren_raft.messages import SnapshotWanted
from warren_raft.types import Index, Membership, Term


def report(node: NodeState, index: Index, now_ms: int) -> None:
    """Ask for a snapshot because no reachable member has that entry; repeated until one has."""
    node.now_ms = now_ms
    log = node.log
    lead = node.leadership
    if index > log.committed and lead is not None:
        give_way(node, lead, index)
    if not log.applying < index <= log.committed:
        return  # applied meanwhile, or not committed: another entry may still replace it
    log.lost = index
    if lead is None:
        ask(node, index)
    elif lead.transfer_to is None:
        # A random successor: the one chosen may have lost an entry, too, and transfer back.
        voters = [v for v in node.others(node.membership.voters) if v not in node.suspected]
        if voters:
            leader_transfer.begin_transfer(node, lead, node.rng.choice(voters))


def give_way(node: NodeState, lead: Leadership, index: Index) -> None:
    """Have a voter stand that lacks that uncommitted entry, if a majority of them lacks it.

    Their logs are shorter, so this member does not vote for them, and is not needed.
    """
    members = node.membership
    lacking = []
    for voter in node.others(members.voters):
        if node.hears(lead, voter, members):
            progress = lead.progress[voter]
            if progress.heard and progress.match < index:
                lacking.append(voter)
    if len(lacking) >= majority(len(members.voters)):
        leader_transfer.have_stand(node, node.rng.choice(lacking))


def found(node: NodeState) -> None:
    """Tell the leader that the entry asked for, if any, is no longer needed."""
    if node.log.lost:
        ask(node, 0)


def ask(node: NodeState, index: Index) -> None:
    """Tell the leader which entry is lacking; 0: none."""
    if node.leader is not None:
        node.messages.append(
            SnapshotWanted(node.group, node.id, node.leader, node.term, index, 0, 0, 0, True)
        )


def helps(node: NodeState, index: Index) -> bool:
    """Return whether a snapshot up to there covers the lost entry and is above `applied`."""
    return node.log.applying < node.log.lost <= index


def skipped(node: NodeState, index: Index, membership: Membership) -> None:
    """Continue from a snapshot that ends with an entry of this log; what follows it stays."""
    node.log.skip_to(index)
    node.configs.begin_at(index, membership)
    membership_change.adopt(node)
    found(node)


def may_install(node: NodeState, index: Index, term: Term) -> bool:
    """See Node.may_install."""
    log = node.log
    if node.leadership is not None:
        return False
    return helps(node, index) or (index > log.committed and not log.has(index, term))
