"""The leader's side of a membership change.

A change is a CONFIG entry with the whole membership after it. It is in effect as soon as it is in
the log; the next one waits until it is committed (thesis, 4.1). Beside what is requested, a leader
on its own demotes a voter that answers under another id (its log was lost, so it cannot count),
and promotes a learner that has caught up, under the id by which it answers.
"""

from __future__ import annotations

from warren_raft.core import leader_transfer, read_rounds
from warren_raft.core.membership import WHAT, Change, Demote, Promote, changed, encode
from warren_raft.core.progress import Progress
from warren_raft.core.quorum import majority
from warren_raft.core.role_state import Leadership
from warren_raft.core.state import NodeState
from warren_raft.core.transitions import become_follower
from warren_raft.errors import MembershipRefused
from warren_raft.types import EntryKind, Index, MemberId, MemberState, NodeId

# ---------------------------------------------------------------------- one change


def propose(node: NodeState, lead: Leadership, change: Change) -> Index:
    """Append a CONFIG with that change. Raises MembershipRefused."""
    what = WHAT[type(change)]
    remedy = obstacle(node, lead)
    if remedy is not None:
        raise MembershipRefused(what, change.node, remedy)
    member: MemberId = 0
    if isinstance(change, Promote) and change.node in node.membership.learners:
        progress = lead.progress[change.node]
        if not caught_up(node, progress):
            raise MembershipRefused(
                what,
                change.node,
                f"it holds {progress.match} of {node.log.last} entries; wait until it caught up",
            )
        member = progress.member or 0
    after = changed(node.membership, change, member)
    if not node.hears_majority(lead, after):
        heard = [voter for voter in after.voters if node.hears(lead, voter, after)]
        raise MembershipRefused(
            what,
            change.node,
            f"of its voters then ({', '.join(after.voters)}) only {', '.join(heard) or 'none'} "
            f"would be reachable, which is no majority; first restart or remove others",
        )
    index = node.log.append_new(node.term, EntryKind.CONFIG, encode(after), node.now_ms)
    node.configs.forget_below(node.log.store.first_index() - 1)
    node.configs.append(index, after)
    adopt(node)
    return index


def obstacle(node: NodeState, lead: Leadership) -> str | None:
    """Return why the membership cannot be changed now; None: it can.

    1. S1 leads four, adds S5 in its log only, and is cut off.  2. S2 leads in a later term, removes
    S1, and commits that with two of three.  3. S1 comes back, and leads again in a later term with
    two of the others' votes: it adds its old CONFIG to a majority and overwrites what was
    committed. Had S2, or S1 in 3, first committed an entry of its own term, the other CONFIG could
    no longer have been completed (the single-server bug; raft-dev, 2015).
    Replayed by tests/raft/transcripts/single_server_bug.txt
    """
    log = node.log
    if log.committed < lead.first:
        return "nothing of this leader's term is committed yet; ask again soon"
    if node.change_under_way:
        return "another change is under way; ask again when that is committed"
    if lead.transfer_to is not None:
        return f"leadership is being handed to {lead.transfer_to}; ask the next leader"
    return None


# ---------------------------------------------------------------------- which voters count


def is_lost(node: NodeState, lead: Leadership, voter: NodeId) -> bool:
    """Return whether a voter of the membership in effect answers under another id."""
    if voter == node.id or voter not in node.membership.voters:
        return False
    return lead.progress[voter].member != node.membership.id_of(voter)


def adopt(node: NodeState) -> None:
    """Put the newest membership of the log into effect."""
    node.membership = node.configs.latest
    node.is_voter = node.membership.votes(node.id, node.member_id)
    if node.leadership is not None:
        adopt_as_leader(node, node.leadership)
    elif not node.asks:
        node.election_at_ms = None


def adopt_as_leader(node: NodeState, lead: Leadership) -> None:
    """Track the members of the membership in effect, and count its voters."""
    members = node.membership
    last, now_ms = node.log.last, node.now_ms
    for member in node.others(members.voters + members.learners):
        progress = lead.progress.get(member)
        if progress is None or progress.leaving:
            progress = Progress(last + 1, member in node.suspected, now_ms)
            lead.progress[member] = progress
        if member in members.learners:
            progress.begin_round(last, now_ms)
            continue
        progress.asked, progress.vouched = 0, False
        if progress.member is None:
            progress.member = members.id_of(member)
    for member, progress in lead.progress.items():
        if member not in members and not progress.leaving:
            progress.leaving = node.configs.latest_index
    count(node, lead)
    read_rounds.answer_reads(
        node, lead, node.id, 0
    )  # the majority, and the voters that owe an answer, may be fewer now


def count(node: NodeState, lead: Leadership) -> None:
    """Compute which copies count for a commit, and whether `settle` may have work to do."""
    members = node.membership
    counting = []
    absent = 0
    for voter in members.voters:
        if voter == node.id:
            absent += not node.is_voter
        elif lead.progress[voter].member == members.id_of(voter):
            counting.append(lead.progress[voter])
        else:
            absent += 1
    lead.counting = tuple(counting)
    lead.absent = [0] * absent
    lead.late.choose(lead.counting, majority(len(members.voters)) - node.is_voter, node.group)
    lead.unsettled = bool(
        absent
        or not node.is_voter
        or node.change_under_way
        or any(progress.leaving for progress in lead.progress.values())
        or (members.learners and node.config.promote_learners)
    )


def heard_as(
    node: NodeState, lead: Leadership, sender: NodeId, member: MemberId
) -> Progress | None:
    """Return the Progress of a member that answers under another id than the last time.

    None: the answer is ignored: it is a founding member's, late, after the present process of that
    node has answered under another id; or this member no longer leads. What the earlier id
    acknowledged counts no longer.

    1. b acknowledges entry 5.  2. It loses its disk.  3. It returns under another id and
    acknowledges 6, which vouches for 1 … 6 on the new disk only. So the old match is dropped with
    the old id, and what the new id acknowledges is all that counts.

    A founding member's answer is late if its node's process has answered under another id already.
    If it has not, an operator has restored the directory with which the node founded the group. It
    is one more member id then, which is demoted, catches up, and is promoted, as any other.
    """
    progress = lead.progress[sender]
    if progress.member is None:
        progress.member, progress.heard = member, True
        return progress
    if member == 0 and progress.heard:
        return None
    fresh = Progress(node.log.last + 1, progress.paused, node.now_ms)
    fresh.member, fresh.heard = member, True
    fresh.leaving = progress.leaving
    lead.progress[sender] = fresh
    lead.reads.forget(sender)
    if lead.transfer_to == sender:
        lead.transfer_to = None
    count(node, lead)
    if not node.majority_heard():
        become_follower(node, node.term)
        return None
    return fresh


# ---------------------------------------------------------------------- the leader's own changes


def settle(node: NodeState, lead: Leadership) -> None:
    """Make the leader's own changes that are possible now; cheap when there are none."""
    if not lead.unsettled or node.leadership is not lead:
        return
    for member, progress in list(lead.progress.items()):
        if progress.leaving and (
            progress.paused
            or progress.next < node.log.store.first_index()
            or progress.commit_known >= progress.leaving
        ):
            del lead.progress[member]
    if obstacle(node, lead) is None:
        if not node.is_voter:
            hand_off(node, lead)
            return
        change = due(node, lead)
        if change is not None:
            propose(node, lead, change)
            return
    count(node, lead)


def due(node: NodeState, lead: Leadership) -> Change | None:
    """Return the change that this leader makes on its own now."""
    members = node.membership
    for voter in members.voters:
        if is_lost(node, lead, voter):
            change: Change = Demote(voter)
            if node.hears_majority(lead, changed(members, change)):
                return change
    if not node.config.promote_learners:
        return None
    for learner in members.learners:
        progress = lead.progress[learner]
        if not progress.paused and caught_up(node, progress):
            after = changed(members, Promote(learner), progress.member or 0)
            if node.hears_majority(lead, after):
                if progress.vouched:
                    return Promote(learner)
                ask_whether_still(node, lead, learner, progress)
    return None


def ask_whether_still(
    node: NodeState, lead: Leadership, learner: NodeId, progress: Progress
) -> None:
    """Ask a learner to confirm its id before its promotion, in a round like that of a read.

    1. b acknowledges everything as 7, loses its disk, and returns as 8, which answers this leader.
    2. A late answer of 7 arrives.  3. Promoted as 7, b would be a voter that never votes; a group
    of one would lose its majority. b does not answer this round as 7.
    """
    if not progress.asked:
        lead.reads.round += 1
        progress.asked = lead.reads.round
        read_rounds.ask_confirm(node, lead)


def caught_up(node: NodeState, progress: Progress) -> bool:
    """Return whether a learner replicates new entries within an election timeout.

    It is sent the log in rounds: what was there when a round began, then what was appended during
    that round, and so on; when one round took less than an election timeout, what is still missing
    delays the commit of its promotion by no more than that (thesis, 4.2.1).
    """
    if progress.member is None or progress.snapshotting:
        return False
    quick_ms = node.config.election_timeout_ms[0]
    while progress.match >= progress.round_end:
        if node.now_ms - progress.round_began_ms < quick_ms:
            return True
        progress.begin_round(node.log.last, node.now_ms)
    return False


def hand_off(node: NodeState, lead: Leadership) -> None:
    """Transfer to the voter with the longest log: this leader's removal is committed."""
    heard = [
        (-lead.progress[voter].match, voter)
        for voter in node.membership.voters
        if node.hears(lead, voter, node.membership)
    ]
    if not heard:
        become_follower(node, node.term)
        return
    leader_transfer.begin_transfer(node, lead, min(heard)[1])


# ---------------------------------------------------------------------- status


def states(node: NodeState, lead: Leadership) -> tuple[MemberState, ...]:
    """Return all members, voters first, as this leader sees them."""
    members, last = node.membership, node.log.last
    before = node.membership
    if node.change_under_way:
        before = node.configs.at(node.configs.latest_index - 1) or members
    found = []
    for member in members.voters + members.learners:
        voter = member in members.voters
        changing = voter != (member in before.voters) or (member in before) != (member in members)
        if member == node.id:
            found.append(
                MemberState(member, voter, True, node.log.durable, last, changing=changing)
            )
            continue
        progress = lead.progress[member]
        state = MemberState(
            member,
            voter,
            False,
            progress.match,
            last,
            progress.paused,
            progress.snapshotting,
            is_lost(node, lead, member),
            changing,
            progress.probing,
        )
        found.append(state)
    return tuple(found)
