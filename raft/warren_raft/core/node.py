"""One member of one group: messages, proposals and events in, `Ready` out.

Nothing here waits, sends, writes or looks at a clock. A host calls, in any order,

    step, propose, propose_change, tick, campaign,
    transfer_leader, peer_*, read_index               something happened
    ready                                             what is to be done
    durable, applied_to, installed                    what was done

`now_ms` is milliseconds since the epoch on a clock that never goes back (see runtime.clock); it is
compared with deadlines and stamped into entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from warren_raft.config import RaftConfig
from warren_raft.core import candidate, damaged, follower, leader, lost, membership_change
from warren_raft.core.candidate import Candidacy
from warren_raft.core.configs import Configs
from warren_raft.core.leader import Leadership
from warren_raft.core.log import LogView
from warren_raft.core.membership import Change
from warren_raft.core.quorum import majority
from warren_raft.core.ready import ReadState, Ready, Role, SoftState
from warren_raft.core.role_table import HANDLERS
from warren_raft.errors import NotLeader, TooManyReads
from warren_raft.messages import (
    AnyRaftMessage,
    PreVote,
    PreVoteReply,
    ReadIndex,
    SnapshotChunk,
    SnapshotWanted,
)
from warren_raft.ports import LogStore
from warren_raft.types import (
    Entry,
    EntryKind,
    GroupId,
    HardState,
    Index,
    MemberId,
    Membership,
    MemberState,
    NodeId,
    Term,
)


class Node:
    """A member of a group; see the module.

    member_id       which life of this node's log it is; it votes only where the membership names
                    it under that id
    configs         the memberships of the log; membership: the one in effect
    leader          whom this member believes to lead; None: nobody, or its node is suspected
    suspected       nodes not heard of
    unread          some of the log could not be read, see core.unread; ready() comes after looking
    stalled         this node's disk does not answer: it does not stand; one that leads still does
    election_at_ms  when to stand for election, or, on a learner, to ask who leads; None while a
                    leader is known, when nobody would hear, and on one that is no member
    attempts        elections stood for in vain since the last leader was known

    Invariants: exactly the role's own state is there (candidacy, leadership); a leader leads
    itself; only a voter stands or leads, or one whose own removal is under way; a member with a
    leader has no election ahead; votes in a term are given once (`vote` changes only with `term`,
    or from None).
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
        log: LogStore,
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
                         and has no snapshot only whom to listen to
        hard_state, log  as they were on disk; all of the log is durable
        rng              may be shared by all groups of a node
        applied          what the machine's state holds already: the index of its snapshot
        configs          see LogStore.configs
        preferred        who campaigns at once when the group is new (term 0, empty log); the
                         others wait new_group_delay_ms longer. A group of one campaigns at once

        Nobody is suspected at first: a host tells `peer_suspected` for those that are.
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
        self.unread = damaged.is_left(self)
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
        first_ms = now_ms + candidate.first_delay(self, preferred)
        self.election_at_ms: int | None = first_ms if self.asks else None

    # ------------------------------------------------------------- something happened

    def step(self, message: AnyRaftMessage, now_ms: int) -> None:
        """Take a message of this group from a peer."""
        assert message.group == self.group, (message.group, self.group)
        assert message.sender != self.id, message.sender
        self.now_ms = now_ms
        kind = type(message)
        if message.term > self.term:
            # A pre-vote speaks of the term after the sender's, which nobody is in yet; so does
            # consent to it. But what the sender is in, it got into by a majority's consent:
            # 1. a is removed, and hands over.  2. b leads the next term with c's vote, and dies.
            # 3. d has heard of neither, and a's node lives: it would refuse c for good.
            if kind is PreVote:
                if message.term - 1 > self.term:
                    self.become_follower(message.term - 1)
            elif not (isinstance(message, PreVoteReply) and message.granted):
                self.become_follower(message.term)
        elif message.term < self.term:
            follower.refuse_stale(self, message)
            return
        handler = HANDLERS[self.role].get(kind)
        if handler is not None:
            handler(self, message)

    def propose(self, data: bytes, now_ms: int) -> Index:
        """Append a COMMAND; returns where it will stand if it is committed in `term`.

        Raises NotLeader (with a hint) on anybody but the leader, and while leadership is being
        handed over. The entry is lost if another leader's entry is committed at that index.
        """
        lead = self.leadership
        if lead is None or lead.transfer_to is not None:
            raise NotLeader(self.group, self.id, None if lead else self.leader)
        self.now_ms = now_ms
        return self.log.append_new(self.term, EntryKind.COMMAND, data, now_ms)

    def propose_change(self, change: Change, now_ms: int) -> Index:
        """Append a CONFIG with one change of the members; in effect at once, see core.changes.

        returns  where it stands; it is done when that is committed in this term
        raises   NotLeader, MembershipRefused
        """
        if self.leadership is None:
            raise NotLeader(self.group, self.id, self.leader)
        self.now_ms = now_ms
        return membership_change.propose(self, self.leadership, change)

    def tick(self, now_ms: int) -> None:
        """Do what is due; harmless when nothing is."""
        self.now_ms = now_ms
        if self.leadership is not None:
            leader.tick(self, self.leadership)
        elif self.election_at_ms is not None and now_ms >= self.election_at_ms:
            if self.stands:
                self.become_pre_candidate()
            else:
                candidate.next_attempt(self)
                candidate.ask_who_leads(self)

    @property
    def deadline_ms(self) -> int | None:
        """When `tick` must be called at the latest; None: never, unless something happens."""
        if self.leadership is not None:
            return leader.deadline(self, self.leadership)
        return self.election_at_ms

    def campaign(self, now_ms: int) -> None:
        """Try to become the leader (pre-vote first); nothing on who may not stand, or leads."""
        self.now_ms = now_ms
        if self.stands and self.role is not Role.LEADER:
            self.leader = None
            self.become_pre_candidate()

    def transfer_leader(self, to: NodeId, now_ms: int) -> None:
        """Hand leadership to a voter once it has everything; given up after transfer_timeout_ms.

        Raises NotLeader, or UsageError when `to` is no voter. Watch soft_state for the outcome.
        """
        lead = self.leadership
        if lead is None:
            raise NotLeader(self.group, self.id, self.leader)
        self.now_ms = now_ms
        leader.begin_transfer(self, lead, to)

    def peer_suspected(self, node: NodeId, now_ms: int) -> None:
        """Nothing has been heard from that node for suspect_after_ms."""
        self.now_ms = now_ms
        self.suspected.add(node)
        lead = self.leadership
        if lead is None:
            if self.leader == node:
                self.lose_leader(self.config.election_delay_ms)
            return
        if node in lead.progress:
            lead.progress[node].pause()
        if lead.transfer_to == node:
            lead.transfer_to = None
        membership_change.settle(self, lead)
        if self.leadership is not None and not self.majority_heard():
            # Check-quorum: it could commit nothing. Clients find another leader, if there is one.
            self.become_follower(self.term)

    def leader_denied(self, node: NodeId, now_ms: int) -> None:
        """That node, which lives, says that it does not lead: it may not even be a member now."""
        self.now_ms = now_ms
        if self.leader == node and self.leadership is None:
            self.lose_leader()

    def peer_connected(self, node: NodeId, now_ms: int, restarted: bool = False) -> None:
        """A connection was (re-)established, or a suspected node was heard of again.

        Must follow every `peer_suspected` when the suspicion ends: until then a leader sends
        that follower nothing.
        """
        self.now_ms = now_ms
        self.suspected.discard(node)
        lead = self.leadership
        if lead is not None:
            if node in lead.progress:
                lead.progress[node].resume(restarted)
        else:
            candidate.stand_soon(self)

    def disk_stalled(self, stalled: bool, now_ms: int) -> None:
        """This node's disk does not answer; False: it does again. See candidate.on_stalled."""
        self.now_ms = now_ms
        self.stalled = stalled
        candidate.on_stalled(self)

    def peer_restarted(self, node: NodeId, now_ms: int) -> None:
        """That node's process is a new one: it leads nothing. Implies peer_connected.

        No message of the process before may follow: whoever believed in that leader again, because
        of a late append, would wait for good for a member that lost its disk.
        """
        self.peer_connected(node, now_ms, True)
        if self.leader == node:
            self.lose_leader(self.config.election_delay_ms)

    def read_index(self, context: int, now_ms: int) -> None:
        """Ask for an index at which a read is current; the answer is a ReadState in a Ready.

        On a follower the leader is asked; a lost message means no answer: ask again. Raises
        NotLeader when no leader is known, TooManyReads over reads_pending_max.
        """
        self.now_ms = now_ms
        if self.leadership is not None:
            reads = self.leadership.reads
            if reads.pending >= self.config.reads_pending_max:
                raise TooManyReads(self.group, self.config.reads_pending_max)
            reads.asked.append((self.id, context))
        elif self.leader is not None:
            self.messages.append(ReadIndex(self.group, self.id, self.leader, self.term, context))
        else:
            raise NotLeader(self.group, self.id, None)

    # ------------------------------------------------------------- what is to be done

    def ready(self) -> Ready | None:
        """Everything to be done since the last call; None: nothing. Call until None."""
        if self.leadership is not None:
            leader.fan_out(self, self.leadership)
        log = self.log
        hard_state = None
        if self.hard_changed:
            self.hard_changed = False
            hard_state = HardState(self.term, self.vote)
        entries = log.take_writes(hard_state is not None)
        committed = log.take_committed(self.config)
        soft_state = None
        if self.soft_given != (self.role, self.leader, self.term):
            self.soft_given = (self.role, self.leader, self.term)
            soft_state = SoftState(self.role, self.leader, self.term)
        if self.candidacy is not None and self.candidacy.sequence is None:
            self.candidacy.sequence = log.sequence
        if not (
            entries
            or committed
            or self.messages
            or self.after_sync
            or self.reads
            or hard_state is not None
            or soft_state is not None
            or self.snapshots
            or self.chunks
        ):
            return None
        ready = Ready(
            log.sequence,
            hard_state,
            tuple(entries),
            tuple(self.messages),
            tuple(self.after_sync),
            tuple(committed),
            tuple(self.reads),
            soft_state,
            tuple(self.snapshots),
            tuple(self.chunks),
        )
        if self.snapshots or self.chunks:
            self.snapshots, self.chunks = [], []
        if self.messages:
            self.messages = []
        if self.after_sync:
            self.after_sync = []
        if self.reads:
            self.reads = []
        return ready

    # ------------------------------------------------------------- what was done

    def durable(self, sequence: int) -> None:
        """Everything that Readys up to `sequence` gave to write is on disk.

        Call `ready()` afterwards: a leader's own copy counts for the commit. What was truncated
        in the meantime is not vouched for, however late this comes.
        """
        self.log.on_durable(sequence)
        if self.leadership is not None:
            leader.advance_commit(self, self.leadership)
            if self.leadership.unsettled:
                membership_change.settle(self, self.leadership)
        elif self.role is Role.CANDIDATE:
            standing = self.candidacy
            assert standing is not None
            if standing.sequence is not None and sequence >= standing.sequence:
                candidate.count(self, self.id, True)

    def applied_to(self, index: Index) -> None:
        """Everything up to `index` is applied."""
        self.log.on_applied(index)

    def installed(self, index: Index, term: Term, time_ms: int, membership: Membership) -> None:
        """A snapshot that `Ready.chunks` brought is durable; it is the log's new beginning.

        membership  as of its last entry

        Ask `may_install` first; the store is changed right after this. See also core.lost.
        """
        follower.installed(self, index, term, time_ms, membership)

    def wants_snapshot(self, member: NodeId) -> bool:
        """This member leads, and that one can be helped by a snapshot only."""
        progress = None if self.leadership is None else self.leadership.progress.get(member)
        return progress is not None and (progress.snapshotting or progress.lacks > 0)

    def may_install(self, index: Index, term: Term) -> bool:
        """A snapshot that ends so says more than this log does, see follower.on_snapshot_chunk."""
        return lost.may_install(self, index, term)

    def entry_lost(self, index: Index, now_ms: int) -> None:
        """Its bytes are damaged, and no member that is heard has it: see core.lost."""
        lost.report(self, index, now_ms)

    # ------------------------------------------------------------- how it stands

    @property
    def synced(self) -> int:
        """The highest sequence that `durable` was told; 0 at first."""
        return self.log.synced

    def membership_at(self, index: Index) -> Membership | None:
        """The members as of that entry, at or above the snapshot: what a snapshot of it names.

        None: not known. A member that joins learns it from the first CONFIG, or snapshot, that it
        is sent; until then it can take no snapshot.
        """
        return self.configs.at(index)

    def member_states(self) -> tuple[MemberState, ...]:
        """All members as their leader sees them; raises NotLeader on anybody else."""
        if self.leadership is None:
            raise NotLeader(self.group, self.id, self.leader)
        return membership_change.states(self, self.leadership)

    @property
    def change_under_way(self) -> bool:
        """The membership in effect is not known to be committed."""
        return self.configs.latest_index > self.log.committed

    @property
    def commit(self) -> Index:
        """Everything up to here is committed, as far as this member knows."""
        return self.log.committed

    @property
    def applied(self) -> Index:
        """Everything up to here is applied."""
        return self.log.applied

    @property
    def last_index(self) -> Index:
        """The last entry's index, durable or not."""
        return self.log.last

    def entry(self, index: Index, term: Term) -> Entry | None:
        """That very entry, on disk or not; None: it is not in this log."""
        log = self.log
        if 0 < index < log.store.first_index():
            return log.store.live_entry(index, term)
        if not 0 < index <= log.last or log.term(index) != term:
            return None
        found = log.slice(index, index, 0)
        return found[0] if found else None

    def sent_term(self, to: NodeId, index: Index) -> Term:
        """The term of an entry that `to` holds, or was sent on the connection that stands.

        Of a leader; 0: neither is known. What follows on that connection finds the entry there,
        unless `to` has turned to another leader in between.
        """
        lead = self.leadership
        progress = None if lead is None else lead.progress.get(to)
        if progress is None:
            return 0
        # Not `match`: until it has answered on this connection its disk may be another one.
        there = not progress.probing and index < progress.next
        return self.log.term(index) if there and index >= self.log.store.first_index() else 0

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
            self.leadership.check(self)
        else:
            assert self.leader != self.id, self.leader
        if self.leader is not None:
            assert self.election_at_ms is None, self.election_at_ms
            assert self.leader not in self.suspected, self.leader

    # ------------------------------------------------------------- for the roles

    def others(self, members: tuple[NodeId, ...]) -> list[NodeId]:
        """Members but this one, in their order."""
        return [member for member in members if member != self.id]

    def majority_heard(self) -> bool:
        """Whether a majority of the voters is not suspected, nor known to be another life."""
        lead = self.leadership
        if lead is not None:
            return membership_change.hears_majority(self, lead, self.membership)
        voters = self.membership.voters
        heard = sum(1 for voter in voters if voter not in self.suspected)
        return heard >= majority(len(voters))

    @property
    def stands(self) -> bool:
        """Whether it may stand: a voter, or one until the CONFIG under way; not while `unread`,
        and not while its disk is `stalled`.

        1. a leads a and b, removes itself, and crashes with that CONFIG on its own disk only.
        2. b needs a's vote, and does not get it: a's log is longer.  3. So a must stand, although
        it does not count its own vote, until the CONFIG is committed (thesis, 4.2.2).
        """
        if self.unread or self.stalled:
            return False
        if self.is_voter or not self.change_under_way:
            return self.is_voter
        before = self.configs.at(self.configs.latest_index - 1)
        return before is not None and before.votes(self.id, self.member_id)

    @property
    def asks(self) -> bool:
        """Whether it cares who leads: a member does; and one that led in this term until it was
        removed, because others may believe in it still."""
        named = self.id in self.membership or self.vote == self.id
        return named or self.stands or bool(self.configs.missing)

    def adopt(self) -> None:
        """The membership in effect may be another one."""
        self.membership = self.configs.latest
        self.is_voter = self.membership.votes(self.id, self.member_id)
        if self.leadership is not None:
            membership_change.adopt(self, self.leadership)
        elif not self.asks:
            self.election_at_ms = None

    def follow(self, sender: NodeId) -> None:
        """`sender` has shown that it leads this term."""
        if self.leader == sender:
            return
        assert self.role is not Role.LEADER, (self.term, self.id, sender)
        assert self.leader is None, (self.term, self.leader, sender)
        self.candidacy = None
        self.role = Role.FOLLOWER
        self.attempts = 0
        if sender in self.suspected:
            # It can be heard again, or it is an old message: the host will say which.
            return
        self.leader = sender
        self.election_at_ms = None

    def lose_leader(self, delay_ms: tuple[int, int] | None = None) -> None:
        """Believe in no leader, and stand for election after a delay out of that range."""
        assert self.leadership is None
        self.leader = None
        delay_ms = delay_ms or self.config.election_timeout_ms
        candidate.set_election(self, self.rng.randrange(*delay_ms))

    def grant(self, candidate_id: NodeId) -> None:
        """Vote in this term, and leave the candidate time to win."""
        assert self.vote in (None, candidate_id), (self.vote, candidate_id)
        if self.vote is None:
            self.vote = candidate_id
            self.hard_changed = True
        candidate.set_election(self, self.rng.randrange(*self.config.election_timeout_ms))

    def become_follower(self, term: Term) -> None:
        """Follow in `term`, without a leader yet; ends whatever this member was."""
        assert term >= self.term, (term, self.term)
        if self.leadership is not None:
            asked = self.leadership.reads.drain()
            self.reads += [ReadState(context, None) for who, context in asked if who == self.id]
            self.leadership = None
            # A snapshot that it sends is stamped with the term that it is in by then:
            # 1. b asks a for the next chunk, and c asks a for a vote.  2. a's chunk is of c's term:
            # b takes a for that term's leader.
            self.snapshots = []
            self.chunks = [part for part in self.chunks if isinstance(part, SnapshotChunk)]
        if term > self.term:
            self.term = term
            self.vote = None
            self.hard_changed = True
        self.candidacy = None
        self.role = Role.FOLLOWER
        self.lose_leader()

    def become_pre_candidate(self) -> None:
        """Ask whether an election could be won; changes nothing that is written."""
        assert self.stands and self.role is not Role.LEADER, self.role
        self.leader = None
        if self.is_voter and len(self.membership.voters) == 1:
            self.become_candidate()
            return
        self.role = Role.PRE_CANDIDATE
        self.candidacy = Candidacy()
        self.candidacy.answers[self.id] = True
        candidate.next_attempt(self)
        candidate.ask_whether(self)

    def become_candidate(self) -> None:
        """Stand for election in a new term (Raft paper, 5.2)."""
        assert self.stands and self.role is not Role.LEADER, self.role
        self.leader = None
        self.term += 1
        self.vote = self.id
        self.hard_changed = True
        self.role = Role.CANDIDATE
        self.candidacy = Candidacy()
        candidate.next_attempt(self)
        candidate.ask(self)

    def become_leader(self) -> None:
        """Lead this term; its first entry commits what earlier terms left behind."""
        assert self.role is Role.CANDIDATE, self.role
        self.role = Role.LEADER
        self.leader = self.id
        self.candidacy = None
        self.election_at_ms = None
        self.attempts = 0
        self.leadership = Leadership(self)
        membership_change.adopt(self, self.leadership)
        self.log.lead_from(self.now_ms)
        self.log.append_new(self.term, EntryKind.NOOP, b"", self.now_ms)
