"""Bugs to plant, which test the simulation itself: each must be found.

A plant replaces one function of the code under test, or of the simulated host, by a plausible wrong
one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from msgspec import structs

from sim.disk import Disk
from sim.member import Member
from sim.planting import Replacement, by_name
from warren_raft.core import candidate, follower, leader, lost, membership_change, read_rounds
from warren_raft.core.configs import Configs
from warren_raft.core.log import LogView
from warren_raft.core.quorum import held_by_majority
from warren_raft.core.raft_node import RaftNode
from warren_raft.core.ready import ReadState
from warren_raft.core.state import NodeState
from warren_raft.messages import AppendReply, Vote
from warren_raft.types import Entry, HardState, Membership

"""(object, name, replacement)."""


def acknowledge_before_sync() -> list[Replacement]:
    """Votes and append replies do not wait for the disk."""
    return [(Member, "may_leave", lambda self, sequence: True)]


def vote_not_persisted() -> list[Replacement]:
    """The term is written, the vote is not."""
    keep = Disk.keep

    def forgetful(self: Disk, writes: Any) -> None:
        keep(self, writes)
        self.hard_state = HardState(self.hard_state.term, None)

    return [(Disk, "keep", forgetful)]


def commit_old_term_by_counting() -> list[Replacement]:
    """Raft paper, figure 8."""

    def eager(node: NodeState, lead: Any) -> None:
        log = node.log
        index = held_by_majority(
            log.durable if v == node.id else lead.progress[v].match for v in node.membership.voters
        )
        if index > log.committed:
            log.commit_to(index)

    return [(leader, "advance_commit", eager)]


def cursor_survives_truncation() -> list[Replacement]:
    """A write in flight still acknowledges entries that were truncated."""
    truncate = LogView.truncate_from

    def forgetful(self: LogView, index: int) -> None:
        before = [write[1] for write in self.writes]
        truncate(self, index)
        for write, held in zip(self.writes, before, strict=True):
            write[1] = held

    def check(self: LogView) -> None:
        """Its own invariant would find it at once; the checkers outside must, too."""

    return [(LogView, "truncate_from", forgetful), (LogView, "check", check)]


def leader_counts_itself_unsynced() -> list[Replacement]:
    """The leader's own copy counts before it is on disk."""

    def eager(node: NodeState, lead: Any) -> None:
        log = node.log
        index = held_by_majority(
            log.last if v == node.id else lead.progress[v].match for v in node.membership.voters
        )
        if index > log.committed and index >= lead.first:
            log.commit_to(index)

    return [(leader, "advance_commit", eager)]


def learner_counted() -> list[Replacement]:
    """A learner's copy counts for the commit."""

    def eager(node: NodeState, lead: Any) -> None:
        log = node.log
        index = held_by_majority(
            log.durable if v == node.id else lead.progress[v].match
            for v in node.membership.voters + node.membership.learners
        )
        if index > log.committed and index >= lead.first:
            log.commit_to(index)

    return [(leader, "advance_commit", eager)]


def vote_for_any_log() -> list[Replacement]:
    """The voter does not compare logs."""
    return [(LogView, "newer_than", lambda self, index, term: False)]


def vote_request_before_sync() -> list[Replacement]:
    """The request for votes does not wait for the candidate's own disk."""

    def eager(node: NodeState) -> None:
        for voter in node.others(node.membership.voters):
            node.messages.append(
                Vote(
                    node.group,
                    node.id,
                    voter,
                    node.term,
                    node.log.last,
                    node.log.last_term,
                    node.membership.id_of(voter),
                    node.member_id,
                )
            )

    return [(candidate, "ask", eager)]


def acknowledge_the_end() -> list[Replacement]:
    """The follower acknowledges the end of its log, not of what it was sent."""
    sends = Member.send

    def boasting(self: Member, batch: Any) -> None:
        assert self.node is not None
        last = self.node.last_index
        sends(
            self,
            tuple(
                AppendReply(m.group, m.sender, m.to, m.term, True, last, m.commit, member=m.member)
                if type(m) is AppendReply
                and m.ok
                and m.term == self.node.term
                and self.disk.safe.last_index() >= last
                else m
                for m in batch
            ),
        )

    return [(Member, "send", boasting)]


def commit_the_end() -> list[Replacement]:
    """The follower commits up to the end of its log, not of what it was sent."""
    on_append = follower.on_append

    def eager(node: NodeState, message: Any) -> None:
        on_append(node, message)
        node.log.commit_to(max(node.log.committed, min(message.commit, node.log.last)))

    return _in_tables(on_append, eager)


def keep_conflicting_entries() -> list[Replacement]:
    """The follower only appends what is beyond its end, and never compares."""

    def blind(node: NodeState, first: int, wire: Any) -> None:
        log = node.log
        fresh = [Entry(first + at, *wire[at]) for at in range(len(wire)) if first + at > log.last]
        if fresh:
            log.append(fresh)

    return [(follower, "take", blind)]


def stale_read() -> list[Replacement]:
    """The leader answers reads without confirming that it still leads."""

    def at_once(node: NodeState, lead: Any) -> None:
        for asker, context in lead.reads.asked:
            if asker == node.id:
                node.reads.append(ReadState(context, node.log.committed))
        lead.reads.asked = []

    return [(read_rounds, "begin_round", at_once)]


def read_before_own_commit() -> list[Replacement]:
    """A new leader answers reads before it knows what its predecessors committed."""
    fan_out = leader.fan_out

    def eager(node: NodeState, lead: Any, crowded: Any) -> None:
        if lead.reads.asked:
            read_rounds.begin_round(node, lead)
        fan_out(node, lead, crowded)

    return [(leader, "fan_out", eager)]


def apply_twice() -> list[Replacement]:
    """A new leader applies the last entry again."""
    become = leader.become_leader

    def again(node: NodeState) -> None:
        become(node)
        log = node.log
        if log.applying == log.applied > 1:
            log.applying = log.applied = log.applied - 1

    return [(leader, "become_leader", again)]


def time_goes_back() -> list[Replacement]:
    """A new leader stamps with its own clock only."""
    append_new = LogView.append_new

    def naive(self: LogView, term: Any, kind: Any, data: Any, now_ms: int) -> int:
        self.last_time_ms = self.ahead_ms = 0
        return append_new(self, term, kind, data, now_ms)

    return [(LogView, "append_new", naive)]


def vote_twice() -> list[Replacement]:
    """The later of two candidates of a term gets a vote, too."""

    def generous(node: NodeState, message: Any) -> None:
        node.vote = None
        on_vote(node, message)

    on_vote = follower.on_vote
    return _in_tables(on_vote, generous)


def second_change_before_the_first() -> list[Replacement]:
    """A change of members does not wait until the one before is committed."""

    def hasty(node: NodeState, lead: Any) -> str | None:
        if node.log.committed < lead.first:
            return "nothing of this term is committed"
        return None

    return [(membership_change, "obstacle", hasty)]


def change_before_own_commit() -> list[Replacement]:
    """A change of members does not wait for an entry of the leader's own term."""

    def hasty(node: NodeState, lead: Any) -> str | None:
        return "a change is under way" if node.change_under_way else None

    return [(membership_change, "obstacle", hasty)]


def unchecked(self: NodeState) -> None:
    """Skip the node's own invariant, which would find the bug at once: the checkers must, too."""


def membership_at_commit() -> list[Replacement]:
    """A membership is in effect when it is committed, not when it is in the log."""
    adopt, ready = membership_change.adopt, RaftNode.ready

    def late(node: NodeState) -> None:
        configs = node.configs
        kept = list(configs.entries)
        configs.entries = [place for place in kept if place[0] <= node.log.committed]
        adopt(node)
        configs.entries = kept

    def later(self: RaftNode) -> Any:
        known = self.configs.at(max(self.configs.base_index, self.log.committed))
        if known is not None and known != self.membership:
            membership_change.adopt(self)
        return ready(self)

    return [
        (membership_change, "adopt", late),
        (RaftNode, "ready", later),
        (NodeState, "check", unchecked),
    ]


def membership_survives_truncation() -> list[Replacement]:
    """A membership stays in effect although its entry was cut."""

    def blind(self: Configs, index: int) -> bool:
        return False

    def append(self: Configs, index: int, membership: Any) -> None:
        self.entries.append((index, membership))

    return [
        (Configs, "truncate_from", blind),
        (Configs, "append", append),
        (NodeState, "check", unchecked),
    ]


def wiped_member_votes() -> list[Replacement]:
    """A vote is given without a check of the member id."""
    on_vote, on_pre_vote = follower.on_vote, follower.on_pre_vote

    def generous(node: NodeState, message: Any) -> None:
        on_vote(node, structs.replace(message, member=node.member_id))

    def friendly(node: NodeState, message: Any) -> None:
        on_pre_vote(node, structs.replace(message, member=node.member_id))

    return _in_tables(on_vote, generous, on_pre_vote, friendly)


def old_match_believed() -> list[Replacement]:
    """Acknowledgements of an earlier member id count for the next one."""

    def trusting(node: NodeState, lead: Any, sender: str, member: int) -> Any:
        return lead.progress[sender]

    return [(membership_change, "heard_as", trusting)]


def voter_under_any_id() -> list[Replacement]:
    """A member that lost its disk takes itself for the earlier voter."""
    return [(Membership, "votes", lambda self, node, member: node in self.voters)]


def removed_leader_counts_itself() -> list[Replacement]:
    """A leader whose own removal is under way counts its own copy."""

    def vain(node: NodeState, lead: Any) -> None:
        log = node.log
        held = [progress.match for progress in lead.counting] + lead.absent
        if node.is_voter:
            held.append(log.durable)
        else:
            held[held.index(min(held))] = log.durable
        index = held_by_majority(held)
        if index > log.committed and index >= lead.first:
            log.commit_to(index)

    return [(leader, "advance_commit", vain)]


def removed_leader_does_not_stand() -> list[Replacement]:
    """A removed member no longer campaigns although the removal is not committed."""
    return [(NodeState, "stands", property(lambda self: self.is_voter))]


def snapshot_names_those_in_effect() -> list[Replacement]:
    """A snapshot names the members in effect, not those as of its last entry."""
    return [(RaftNode, "membership_at", lambda self, index: self.membership)]


def snapshot_leaves_the_membership() -> list[Replacement]:
    """An installed snapshot does not set its members."""

    def keep(self: Configs, index: int, membership: Membership) -> None:
        self.base_index, self.base = index, self.latest
        self.entries.clear()

    return [(Configs, "reset_to", keep)]


def snapshot_over_a_longer_log() -> list[Replacement]:
    """A snapshot is installed although the log holds its last entry and later ones."""
    installed = follower.installed

    def eager(node: NodeState, index: int, term: int) -> bool:
        return node.leadership is None and index > node.log.committed

    def whole(node: NodeState, *snapshot: Any) -> None:
        with mock.patch.object(LogView, "has", lambda log, index, term: False):
            installed(node, *snapshot)

    return [(lost, "may_install", eager), (follower, "installed", whole)]


def commit_told_with_entries_only() -> list[Replacement]:
    """The delay of a commit message has no end: only the next entries tell what is committed."""
    fan_out = leader.fan_out

    def forgetful(node: NodeState, lead: Any, crowded: Any) -> None:
        fan_out(node, lead, crowded)
        lead.commit_due_ms = None

    return [(leader, "fan_out", forgetful)]


def last_copies_not_sent() -> list[Replacement]:
    """Followers beyond a majority are sent nothing more, as no commit needs them."""
    feed = leader.feed

    def thrifty(node: NodeState, lead: Any, to: str, progress: Any, told_now: int) -> bool:
        if progress in lead.late.followers and not progress.probing:
            return False
        return feed(node, lead, to, progress, told_now)

    return [(leader, "feed", thrifty)]


def _in_tables(*pairs: Callable[..., Any]) -> list[Replacement]:
    """Replace handlers in the node's tables: old, new, old, new …"""
    from warren_raft.core import raft_node as module

    new = dict(zip(pairs[::2], pairs[1::2], strict=True))
    tables = tuple(
        {kind: new.get(handler, handler) for kind, handler in table.items()}
        for table in module.HANDLERS
    )
    return [(module, "HANDLERS", tables)]


PLANTS = by_name(
    acknowledge_before_sync,
    vote_not_persisted,
    commit_old_term_by_counting,
    cursor_survives_truncation,
    leader_counts_itself_unsynced,
    learner_counted,
    vote_for_any_log,
    vote_request_before_sync,
    acknowledge_the_end,
    commit_the_end,
    keep_conflicting_entries,
    stale_read,
    read_before_own_commit,
    apply_twice,
    time_goes_back,
    vote_twice,
    second_change_before_the_first,
    change_before_own_commit,
    membership_at_commit,
    membership_survives_truncation,
    wiped_member_votes,
    old_match_believed,
    voter_under_any_id,
    removed_leader_counts_itself,
    removed_leader_does_not_stand,
    snapshot_names_those_in_effect,
    snapshot_leaves_the_membership,
    snapshot_over_a_longer_log,
    commit_told_with_entries_only,
    last_copies_not_sent,
)


@contextmanager
def planted(plant: Callable[[], list[Replacement]] | None) -> Iterator[None]:
    """Plant the bug while the context lasts; None: no bug."""
    replaced = []
    for where, what, by in plant() if plant is not None else ():
        replaced.append((where, what, getattr(where, what)))
        setattr(where, what, by)
    try:
        yield
    finally:
        for where, what, by in replaced:
            setattr(where, what, by)
