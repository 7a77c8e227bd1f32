"""The state of one member of one group, and its invariants."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from warren_raft.config import RaftConfig
from warren_raft.core.configs import Configs
from warren_raft.core.log import LogView
from warren_raft.core.quorum import majority
from warren_raft.core.ready import ReadState, Role
from warren_raft.core.role_state import Candidacy, Leadership
from warren_raft.messages import AnyRaftMessage, SnapshotChunk, SnapshotWanted
from warren_raft.ports import LogReader
from warren_raft.types import GroupId, HardState, Index, MemberId, Membership, NodeId, Term


class NodeState:
    """The fields of a Node, which the functions of the roles read and write.

    member_id       the identity of this node's log; it votes only where the membership names it
                    under that id
    configs         the memberships of the log; membership: the one in effect
    leader          the known leader; None: not known, or its node is suspected
    suspected       nodes that are unreachable
    unread          some of the log could not be read, see core.damaged; ready() checks it first
    stalled         this node's disk does not answer: it does not campaign; a leader still leads
    election_at_ms  when to campaign, or, on a learner, to ask for the leader; None while a leader
                    is known, while no majority is reachable, and on one that is no member
    attempts        failed elections since the last leader was known

    Invariants: exactly the role's own state exists (candidacy, leadership); a leader's `leader` is
    itself; only a voter campaigns or leads, or one with its own removal under way; a member with a
    leader has no election scheduled; votes in a term are given once (`vote` changes only with
    `term`, or from None).
    """

    __slots__ = (
        "after_sync",
        "attempts",
        "candidacy",
        "chunks",
        "config",
        "configs",
        "election_at_ms",
        "group",
        "hard_changed",
        "id",
        "is_voter",
        "leader",
        "leadership",
        "log",
        "member_id",
        "membership",
        "messages",
        "now_ms",
        "reads",
        "rng",
        "role",
        "snapshots",
        "soft_given",
        "stalled",
        "suspected",
        "term",
        "unread",
        "vote",
    )

    def __init__(
        self,
        group: GroupId,
        node_id: NodeId,
        membership: Membership,
        hard_state: HardState,
        log: LogReader,
        config: RaftConfig,
        rng: Random,
        now_ms: int,
        preferred: NodeId | None = None,
        applied: Index = 0,
        member_id: MemberId = 0,
        configs: Iterable[tuple[Index, bytes | None]] = (),
    ) -> None:
        """Begin as a follower that knows no leader.

        membership       as of the snapshot; without one the founders; on a member that is joining
                         and has no snapshot only which nodes to listen to
        hard_state, log  as they were on disk; all of the log is durable
        rng              may be shared by all groups of a node
        applied          what the machine's state holds already: the index of its snapshot
        configs          see LogReader.configs
        preferred        the node that campaigns at once when the group is new (term 0, empty log);
                         the others wait new_group_delay_ms longer. A group of one campaigns at once

        No node is suspected at first: the host calls `peer_suspected` for those that are.
        """
        self.group = group
        self.id = node_id
        self.member_id = member_id
        self.configs = Configs(applied, membership, member_id != 0 and applied == 0, configs)
        self.membership = self.configs.latest
        self.is_voter = self.membership.votes(node_id, member_id)
        self.config = config
        self.rng = rng
        self.now_ms = now_ms
        self.log = LogView(log, applied)
        self.unread = self.lacks_beginning()
        assert self.log.last_term <= hard_state.term, (self.log.last_term, hard_state.term)
        self.term: Term = hard_state.term
        self.vote: NodeId | None = hard_state.vote
        self.role = Role.FOLLOWER
        self.leader: NodeId | None = None
        self.suspected: set[NodeId] = set()
        self.stalled = False
        self.attempts = 0
        self.candidacy: Candidacy | None = None
        self.leadership: Leadership | None = None
        self.hard_changed = False
        self.messages: list[AnyRaftMessage] = []
        self.after_sync: list[AnyRaftMessage] = []
        self.reads: list[ReadState] = []
        self.snapshots: list[NodeId] = []
        self.chunks: list[SnapshotChunk | SnapshotWanted] = []
        self.soft_given: tuple[Role, NodeId | None, Term] = (Role.FOLLOWER, None, self.term)
        first_ms = now_ms + self.first_delay_ms(preferred)
        self.election_at_ms: int | None = first_ms if self.asks else None

    def first_delay_ms(self, preferred: NodeId | None) -> int:
        """Return how long a member that has just started waits for a leader's message."""
        if self.is_voter and len(self.membership.voters) == 1:
            return 0
        delay = self.rng.randrange(*self.config.election_timeout_ms)
        if self.term == 0 and self.log.last == 0 and preferred is not None:
            return 0 if preferred == self.id else self.config.new_group_delay_ms + delay
        return delay

    # ------------------------------------------------------------- derived

    def others(self, members: tuple[NodeId, ...]) -> list[NodeId]:
        """Return the members without this one, in their order."""
        return [member for member in members if member != self.id]

    @property
    def change_under_way(self) -> bool:
        """Whether the membership in effect is not known to be committed."""
        return self.configs.latest_index > self.log.committed

    def hears(self, lead: Leadership, voter: NodeId, membership: Membership) -> bool:
        """Return whether that voter of `membership` is reachable under the id that it has there.

        lead  this member's own leadership
        """
        member = membership.id_of(voter)
        if voter == self.id:
            return member == self.member_id
        progress = lead.progress.get(voter)
        return progress is not None and not progress.paused and progress.member == member

    def hears_majority(self, lead: Leadership, membership: Membership) -> bool:
        """Return whether a majority of those voters is reachable under their ids."""
        voters = membership.voters
        return sum(self.hears(lead, v, membership) for v in voters) >= majority(len(voters))

    def majority_heard(self) -> bool:
        """Return whether a majority of the voters is reachable (of a leader: under their ids)."""
        lead = self.leadership
        if lead is not None:
            return self.hears_majority(lead, self.membership)
        voters = self.membership.voters
        heard = sum(1 for voter in voters if voter not in self.suspected)
        return heard >= majority(len(voters))

    def lacks_beginning(self) -> bool:
        """Return whether data that is needed from the start is still unread, see core.damaged."""
        return not self.log.dated or bool(self.configs.missing)

    @property
    def stands(self) -> bool:
        """Whether it may campaign.

        A voter may, and so may one whose removal is not committed; not while `unread` or `stalled`.

        1. a leads a and b, removes itself, and crashes with that CONFIG on its own disk only.
        2. b needs a's vote, and does not get it: a's log is longer.  3. So a must campaign,
        although it does not count its own vote, until the CONFIG is committed (thesis, 4.2.2).
        """
        if self.unread or self.stalled:
            return False
        if self.is_voter or not self.change_under_way:
            return self.is_voter
        before = self.configs.at(self.configs.latest_index - 1)
        return before is not None and before.votes(self.id, self.member_id)

    @property
    def asks(self) -> bool:
        """Whether it needs a leader.

        A member does; so does one that led in this term until it was removed, because others may
        still follow it.
        """
        named = self.id in self.membership or self.vote == self.id
        return named or self.stands or bool(self.configs.missing)

    def check(self) -> None:
        """Assert every invariant."""
        self.log.check()
        self.configs.check()
        assert self.membership == self.configs.latest, self.membership
        assert self.is_voter == self.membership.votes(self.id, self.member_id), self.membership
        assert self.configs.latest_index <= self.log.last, self.configs.latest_index
        assert self.log.last_term <= self.term, (self.log.last_term, self.term)
        standing = self.role in (Role.PRE_CANDIDATE, Role.CANDIDATE)
        assert (self.candidacy is not None) == standing, self.role
        assert (self.leadership is not None) == (self.role is Role.LEADER), self.role
        assert self.stands or self.role in (Role.FOLLOWER, Role.LEADER), self.role
        assert self.role is not Role.CANDIDATE or self.vote == self.id, self.vote
        if self.leadership is not None:
            assert self.leader == self.id, (self.leader, self.id)
            self.leadership.check(self.log.last, self.membership, self.is_voter)
        else:
            assert self.leader != self.id, self.leader
        if self.leader is not None:
            assert self.election_at_ms is None, self.election_at_ms
            assert self.leader not in self.suspected, self.leader
