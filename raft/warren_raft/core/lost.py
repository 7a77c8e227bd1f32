"""A committed entry that this member cannot read, and that the others have released.

1. a, b, c hold 1 … 65 on their disks; a has applied 4 and stops.  2. b and c apply 65, take a
snapshot of it and release what is below: they know that a holds it.  3. Entry 5 is damaged on a.
4. a starts. None can give it 5, and it is appended what follows 65: it would never apply again.

So it asks its leader for the snapshot. What the log holds after the snapshot's last entry stays:
this member has vouched for it. One that leads itself lets another lead, which it can ask then.
"""

from __future__ import annotations

from warren_raft.core import leader_transfer, membership_change
from warren_raft.core.state import NodeState
from warren_raft.messages import SnapshotWanted
from warren_raft.types import Index, Membership, Term


def report(node: NodeState, index: Index, now_ms: int) -> None:
    """Ask for a snapshot, because no reachable member has that entry. Repeat while it is so."""
    node.now_ms = now_ms
    log = node.log
    if not log.applying < index <= log.committed:
        return  # applied meanwhile; or another leader's may stand there yet
    log.lost = index
    lead = node.leadership
    if lead is None:
        ask(node, index)
    elif lead.transfer_to is None:
        # By chance: the one that is asked may have lost an entry, too, and hand it back.
        voters = [v for v in node.others(node.membership.voters) if v not in node.suspected]
        if voters:
            leader_transfer.begin_transfer(node, lead, node.rng.choice(voters))


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
    """A snapshot up to there has what is lost; never one that holds no more than is applied."""
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
