"""One member of one group: messages, proposals and events in, `Ready` out.

Nothing here waits, sends, writes or looks at a clock. A host calls, in any order,

    step, propose, propose_change, tick, campaign,
    transfer_leader, peer_*, read_index               something happened
    ready                                             what is to be done
    durable, applied_to, installed                    what was done

`now_ms` is milliseconds since the epoch on a clock that never moves backwards
(`runtime.loop.Clock`); it is compared with deadlines and stamped into entries.
"""

from __future__ import annotations

from collections.abc import Container

from warren_raft.core import candidate, follower, leader, leader_transfer, lost, membership_change
from warren_raft.core.membership import Change
from warren_raft.core.ready import Ready, Role, SoftState
from warren_raft.core.role_table import HANDLERS
from warren_raft.core.state import NodeState
from warren_raft.core.transitions import become_follower, lose_leader, next_attempt, stand_soon
from warren_raft.errors import NotLeader, TooManyReads
from warren_raft.messages import AnyRaftMessage, PreVote, PreVoteReply, ReadIndex
from warren_raft.types import (
    Entry,
    EntryKind,
    HardState,
    Index,
    Membership,
    MemberState,
    NodeId,
    Term,
)


class RaftNode(NodeState):
    """A member as its host uses it; the state and its invariants are NodeState's."""

    __slots__ = ()

    # ------------------------------------------------------------- something happened

    def step(self, message: AnyRaftMessage, now_ms: int) -> None:
        """Take a message of this group from a peer."""
        assert message.group == self.group, (message.group, self.group)
        assert message.sender != self.id, message.sender
        self.now_ms = now_ms
        kind = type(message)
        if message.term > self.term:
            # A pre-vote carries the term after the sender's, which no member is in yet; so does
            # the grant of one. But the sender's own term was entered by a majority's consent:
            # 1. a is removed, and transfers leadership.  2. b leads the next term with c's vote,
            # and crashes.  3. d knows of neither, and a's node is up: it would refuse c forever.
            if kind is PreVote:
                if message.term - 1 > self.term:
                    become_follower(self, message.term - 1)
            elif not (isinstance(message, PreVoteReply) and message.granted):
                become_follower(self, message.term)
        elif message.term < self.term:
            follower.refuse_stale(self, message)
            return
        handler = HANDLERS[self.role].get(kind)
        if handler is not None:
            handler(self, message)

    def propose(self, data: bytes, now_ms: int) -> Index:
        """Append a COMMAND; return the index it will have if it is committed in `term`.

        Raises NotLeader (with a hint) on any member but the leader, and during a leader transfer.
        The entry is lost if another leader's entry is committed at that index.
        """
        lead = self.leadership
        if lead is None or lead.transfer_to is not None:
            raise NotLeader(self.group, self.id, None if lead else self.leader)
        self.now_ms = now_ms
        return self.log.append_new(self.term, EntryKind.COMMAND, data, now_ms)

    def propose_change(self, change: Change, now_ms: int) -> Index:
        """Append a CONFIG with one membership change, which is in effect at once.

        See core.membership_change.

        returns  its index; the change is done when that is committed in this term
        raises   NotLeader, MembershipRefused
        """
        if self.leadership is None:
            raise NotLeader(self.group, self.id, self.leader)
        self.now_ms = now_ms
        return membership_change.propose(self, self.leadership, change)

    def tick(self, now_ms: int) -> None:
        """Act on deadlines that have passed; harmless when none has."""
        self.now_ms = now_ms
        if self.leadership is not None:
            leader.tick(self, self.leadership)
        elif self.election_at_ms is not None and now_ms >= self.election_at_ms:
            if self.stands:
                candidate.become_pre_candidate(self)
            else:
                next_attempt(self)
                candidate.ask_who_leads(self)

    @property
    def deadline_ms(self) -> int | None:
        """Return when `tick` must be called at the latest; None: not before the next event."""
        if self.leadership is not None:
            return leader.deadline(self, self.leadership)
        return self.election_at_ms

    def campaign(self, now_ms: int) -> None:
        """Start an election (pre-vote first); ignored on a leader and where it may not campaign."""
        self.now_ms = now_ms
        if self.stands and self.role is not Role.LEADER:
            self.leader = None
            candidate.become_pre_candidate(self)

    def transfer_leader(self, to: NodeId, now_ms: int) -> None:
        """Transfer leadership to a voter once it has every entry, within transfer_timeout_ms.

        Raises NotLeader, or UsageError when `to` is no voter. Watch soft_state for the outcome.
        """
        lead = self.leadership
        if lead is None:
            raise NotLeader(self.group, self.id, self.leader)
        self.now_ms = now_ms
        leader_transfer.begin_transfer(self, lead, to)

    def peer_suspected(self, node: NodeId, now_ms: int) -> None:
        """Take note that nothing was received from that node for suspect_after_ms."""
        self.now_ms = now_ms
        self.suspected.add(node)
        lead = self.leadership
        if lead is None:
            if self.leader == node:
                lose_leader(self, self.config.election_delay_ms)
            return
        if node in lead.progress:
            lead.progress[node].pause()
        if lead.transfer_to == node:
            lead.transfer_to = None
        membership_change.settle(self, lead)
        if self.leadership is not None and not self.majority_heard():
            # Check-quorum: it could commit nothing. Clients look for another leader.
            become_follower(self, self.term)

    def leader_denied(self, node: NodeId, now_ms: int) -> None:
        """Take note that `node`, which is up, says that it does not lead (or is no member)."""
        self.now_ms = now_ms
        if self.leader == node and self.leadership is None:
            lose_leader(self)

    def peer_connected(self, node: NodeId, now_ms: int, restarted: bool = False) -> None:
        """Take note that a connection was (re-)established, or that a suspicion has ended.

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
            stand_soon(self)

    def disk_stalled(self, stalled: bool, now_ms: int) -> None:
        """Take note that this node's disk stalls, or answers again. See candidate.on_stalled."""
        self.now_ms = now_ms
        self.stalled = stalled
        candidate.on_stalled(self)

    def peer_restarted(self, node: NodeId, now_ms: int) -> None:
        """Take note that a node's process is a new one: it leads nothing. Implies peer_connected.

        No message of the earlier process may follow: a member that followed it again because of a
        late append would wait forever for a leader that lost its disk.
        """
        self.peer_connected(node, now_ms, True)
        if self.leader == node:
            lose_leader(self, self.config.election_delay_ms)

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

    def ready(self, crowded: Container[NodeId] = ()) -> Ready | None:
        """Return everything to be done since the last call; None: nothing.

        Only `committed` may be a part: call again when that is applied, while `replays`.

        crowded  nodes that are sent no appends now; call again when one of them is not any more
        """
        if self.leadership is not None:
            leader.fan_out(self, self.leadership, crowded)
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

    def durable(self, sequence: int) -> bool:
        """Take note that the writes of all Readys up to `sequence` are on disk.

        However late the call, entries that were truncated in the meantime do not count as durable.

        returns  whether `ready()` may have something since: a leader's own copy counts for the
                 commit, and a candidate's own vote for the election. On a follower only answers
                 waited for the disk, and the host holds those
        """
        self.log.on_durable(sequence)
        if self.leadership is not None:
            leader.advance_commit(self, self.leadership)
            if self.leadership.unsettled:
                membership_change.settle(self, self.leadership)
                return True
            return self.replays
        if self.role is Role.CANDIDATE:
            standing = self.candidacy
            assert standing is not None
            if standing.sequence is not None and sequence >= standing.sequence:
                candidate.count(self, self.id, True)
            return True
        return False

    @property
    def replays(self) -> bool:
        """Whether more is committed than Readys have given out."""
        return self.log.applying < self.log.committed

    def applied_to(self, index: Index) -> None:
        """Take note that everything up to `index` is applied."""
        self.log.on_applied(index)

    def installed(self, index: Index, term: Term, time_ms: int, membership: Membership) -> None:
        """Take note that a received snapshot is durable: it is the log's new beginning.

        membership  as of its last entry

        Ask `may_install` first; the store is changed right after this. See also core.lost.
        """
        follower.installed(self, index, term, time_ms, membership)

    def wants_snapshot(self, member: NodeId) -> bool:
        """Return whether this member leads, and `member` needs a snapshot."""
        progress = None if self.leadership is None else self.leadership.progress.get(member)
        return progress is not None and (progress.snapshotting or progress.lacks > 0)

    def may_install(self, index: Index, term: Term) -> bool:
        """Return whether a snapshot with that end is of use, see follower.on_snapshot_chunk."""
        return lost.may_install(self, index, term)

    def entry_lost(self, index: Index, now_ms: int) -> None:
        """Take note that an entry is damaged and no reachable member has it: see core.lost."""
        lost.report(self, index, now_ms)

    # ------------------------------------------------------------- status

    @property
    def synced(self) -> int:
        """The highest sequence passed to `durable`; 0 at first."""
        return self.log.synced

    def membership_at(self, index: Index) -> Membership | None:
        """Return the members as of that entry, for a snapshot of it; not below the last snapshot.

        None: not known. A joining member learns it from the first CONFIG, or snapshot, that it
        receives; until then it can take no snapshot.
        """
        return self.configs.at(index)

    def member_states(self) -> tuple[MemberState, ...]:
        """Return all members as the leader sees them; raises NotLeader on any other member."""
        if self.leadership is None:
            raise NotLeader(self.group, self.id, self.leader)
        return membership_change.states(self, self.leadership)

    @property
    def commit(self) -> Index:
        """The highest index that this member knows to be committed."""
        return self.log.committed

    @property
    def applied(self) -> Index:
        """The highest applied index."""
        return self.log.applied

    @property
    def last_index(self) -> Index:
        """The last entry's index, durable or not."""
        return self.log.last

    def entry(self, index: Index, term: Term) -> Entry | None:
        """Return the entry with that index and term, durable or not; None: not in this log."""
        log = self.log
        if 0 < index < log.store.first_index():
            return log.store.live_entry(index, term)
        if not 0 < index <= log.last or log.term(index) != term:
            return None
        found = log.slice(index, index, 0)
        return found[0] if found else None

    def sent_term(self, to: NodeId, index: Index) -> Term:
        """Return the term of an entry that `to` holds, or was sent on the present connection.

        Of a leader; 0: neither is known. What follows on that connection finds the entry there,
        unless `to` has turned to another leader in between.
        """
        lead = self.leadership
        progress = None if lead is None else lead.progress.get(to)
        if progress is None:
            return 0
        # Not `match`: until it has answered on this connection its disk may have been replaced.
        there = not progress.probing and index < progress.next
        return self.log.term(index) if there and index >= self.log.store.first_index() else 0
