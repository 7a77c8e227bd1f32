"""The properties of every world, one small checker each.

The checkers are outside the code under test and see all disks and all members at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren_raft.core.membership import decode
from warren_raft.core.quorum import majority
from warren_raft.core.ready import Ready, Role, SoftState
from warren_raft.messages import AppendReply, Vote, VoteReply
from warren_raft.types import Entry, EntryKind, Membership

if TYPE_CHECKING:
    from sim.disk import Disk
    from sim.member import Member
    from sim.world import World


class Violation(AssertionError):
    """A property does not hold."""


def require(holds: bool, what: str, *evidence: Any) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(f"{what}: {', '.join(repr(piece) for piece in evidence)}")


class ElectionSafety:
    """At most one leader per term (Raft paper, figure 3), identified by node and member id."""

    def __init__(self) -> None:
        self.leaders: dict[int, tuple[str, int]] = {}

    def role(self, member: Member, soft: SoftState) -> None:
        """A member's role changed."""
        if soft.role is Role.LEADER:
            leader = (member.name, member.disk.member_id)
            known = self.leaders.setdefault(soft.term, leader)
            require(known == leader, "two leaders in a term", soft.term, known, leader)


class OneVote:
    """A member id votes for one candidate per term, also across crashes.

    A leader has the votes of a majority of the ids that its membership names.
    """

    def __init__(self) -> None:
        self.votes: dict[tuple[str, int, int], str] = {}

    def role(self, member: Member, soft: SoftState) -> None:
        """A member's role changed."""
        if soft.role is Role.LEADER:
            assert member.node is not None
            members = member.node.membership
            votes = [
                voter
                for voter in members.voters
                if voter == member.name
                or self.votes.get((voter, members.id_of(voter), soft.term)) == member.name
            ]
            require(
                len(votes) >= majority(len(members.voters)),
                "a leader without a majority's votes",
                member.name,
                soft.term,
                members,
                votes,
            )

    def sent(self, member: Member, message: VoteReply) -> None:
        """Check a vote that is sent."""
        disk = member.disk.hard_state
        vote = (member.name, member.disk.member_id, message.term)
        known = self.votes.setdefault(vote, message.to)
        require(known == message.to, "two votes in a term", vote, known, message.to)
        require(
            disk.term > message.term or (disk.term, disk.vote) == (message.term, message.to),
            "a vote leaves before it is on disk",
            vote,
            message.to,
            disk,
        )


class LogMatching:
    """Two entries of one index and term are equal, and so is all before them (figure 3)."""

    def __init__(self) -> None:
        self.seen: dict[tuple[int, int], tuple[int, Entry]] = {}

    def written(self, member: Member, entries: tuple[Entry, ...]) -> None:
        """Check entries that are written to a member's disk."""
        first = entries[0].index
        before = member.term_at(first - 1)
        for entry in entries:
            key = (entry.index, entry.term)
            known = self.seen.setdefault(key, (before, entry))
            require(known == (before, entry), "logs differ", member.name, known, before, entry)
            before = entry.term


def term_on_disk(member: Member, message: AppendReply | Vote, otherwise: str) -> Disk:
    """Require that the message's term is on the member's disk; return that disk."""
    disk = member.disk
    require(disk.hard_state.term >= message.term, otherwise, member.name, disk.hard_state, message)
    return disk


class Acknowledgement:
    """A member acknowledges only what its disk holds."""

    def sent(self, member: Member, message: AppendReply) -> None:
        """Check an append reply that is sent."""
        disk = term_on_disk(member, message, "a term is told before it is on disk")
        if message.ok and disk.hard_state.term == message.term:
            require(
                disk.safe.last_index() >= message.index,
                "acknowledged before it is on disk",
                member.name,
                disk.safe.last_index(),
                message,
            )

    def turned(self, member: Member) -> None:
        """Compare the core's cursor with the disk after a turn."""
        assert member.node is not None
        log = member.node.log
        safe = member.disk.safe
        require(log.durable <= log.last, "durable beyond the log", member.name, log.durable)
        require(
            log.durable <= safe.last_index(),
            "durable beyond the disk",
            member.name,
            log.durable,
            safe.last_index(),
        )
        if log.durable > safe.base:
            require(
                safe.term(log.durable) == log.term(log.durable),
                "durable is another entry on disk",
                member.name,
                log.durable,
            )


class Candidate:
    """A candidate asks for votes with what its disk holds.

    1. A asks for votes in term 5 with entries 8, 9 unsynced.  2. It crashes, restarts with 7 in
    term 4, and campaigns in term 5 again.  3. A vote for its first attempt arrives: it would lead
    with a log that the voter would have refused.
    """

    def sent(self, member: Member, message: Vote) -> None:
        """Check a request for a vote that is sent."""
        disk = term_on_disk(member, message, "a vote is asked for in a term that is not on disk")
        # A member that has followed a leader of that term meanwhile, and truncated its log, no
        # longer campaigns: its term is on disk with its own vote, so no vote can elect it.
        if member.node is not None and member.node.role is Role.CANDIDATE:
            require(
                disk.safe.last_index() >= message.last_index,
                "a vote is asked for with entries that are not on disk",
                member.name,
                message,
            )


class Committed:
    """Committed entries are on a majority's disks and never change.

    The majority is of the membership of the first member that knows it, and a voter's disk that of
    the id named there: one that was lost since then counts, as it did when it acknowledged.

    entries  all committed entries, in order
    terms    the term in which each was first known to be committed
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: list[Entry] = []
        self.terms: list[int] = []

    def turned(self, member: Member) -> None:
        """Check entries that the member is the first to know committed."""
        assert member.node is not None
        node = member.node
        if node.role is Role.LEADER and node.commit > len(self.entries):
            # By counting, only entries of its own term are committed (Raft paper, 5.4.2).
            require(
                node.log.term(node.commit) == node.term,
                "an entry of an earlier term committed by counting",
                member.name,
                node.commit,
            )
        while len(self.entries) < node.commit:
            index = len(self.entries) + 1
            entry = node.log.slice(index, index, 0)[0]
            allowed = [node.membership]
            if node.configs.latest_index > member.last_seen:
                # It arrived in this turn, perhaps right after the commit.
                allowed.append(node.configs.at(node.configs.latest_index - 1) or node.membership)
            require(
                any(self.held(members, entry) for members in allowed),
                "committed without a majority on disk",
                member.name,
                entry,
                allowed,
            )
            self.entries.append(entry)
            self.terms.append(node.term)
            self.world.roster.commit(entry)

    def held(self, members: Membership, entry: Entry) -> bool:
        """Return whether a majority of those voters has, or had on a lost disk, the entry."""
        disks = [
            self.world.members[voter].disk.held_as(members.id_of(voter)) for voter in members.voters
        ]
        holders = sum(disk.holds(entry.index, entry.term) for disk in disks)
        return holders >= majority(len(disks))

    def role(self, member: Member, soft: SoftState) -> None:
        """Leader completeness: a leader holds what was committed in lower terms (figure 3).

        Not in higher ones: its votes may have been delayed for so long that the next leader has
        committed already. Such a leader commits nothing.
        """
        if soft.role is Role.LEADER:
            assert member.node is not None
            log = member.node.log
            base = log.store.first_index() - 1
            for entry, term in zip(self.entries, self.terms, strict=True):
                require(
                    term >= soft.term
                    or entry.index <= base
                    or (entry.index <= log.last and log.term(entry.index) == entry.term),
                    "a leader lacks a committed entry",
                    member.name,
                    soft,
                    entry,
                )

    def applied(self, member: Member, entry: Entry) -> None:
        """Check state machine safety: all members apply the same at an index (figure 3)."""
        # The member may be the first to know: `turned` has not seen its commit yet.
        if entry.index > len(self.entries):
            self.turned(member)
        require(
            entry.index <= len(self.entries), "applied before it is committed", member.name, entry
        )
        known = self.entries[entry.index - 1]
        require(known == entry, "applied differently", member.name, known, entry)


class Configurations:
    """Memberships change one voter at a time, each in effect from its index on (thesis, 4.1)."""

    def __init__(self, world: World) -> None:
        self.world = world

    def written(self, member: Member, entries: tuple[Entry, ...]) -> None:
        """Check entries written to a member's disk; the last of them is the end of its log."""
        assert member.node is not None
        node = member.node
        configs = [entry for entry in entries if entry.kind is EntryKind.CONFIG]
        for entry in configs:
            self.world.roster.written(entry)
            before, after = node.configs.at(entry.index - 1), decode(entry.data)
            if before is not None:
                moved = voters(before) ^ voters(after)
                require(len(moved) <= 1, "two voters changed at once", member.name, before, after)
            if node.role is Role.LEADER and entry.term == node.term:
                self.proposed(member, entry)
        if configs:
            in_effect = decode(configs[-1].data)
            require(
                node.membership == in_effect,
                "a membership is not in effect that is in the log",
                member.name,
                node.membership,
                in_effect,
            )

    def snapshot(self, member: Member, index: int, members: Membership) -> None:
        """Check that a snapshot names the members as of its last entry."""
        known = [m for place, m in self.world.roster.committed if place <= index][-1]
        require(
            members == known, "a snapshot names other members", member.name, index, members, known
        )

    def proposed(self, member: Member, entry: Entry) -> None:
        """Check a leader's new change: no other leader may be able to complete an earlier one."""
        assert member.node is not None
        log = member.node.log
        earlier = [place for place, _ in member.node.configs.entries if place < entry.index]
        require(
            not earlier or earlier[-1] <= log.committed,
            "a change before the last one was committed",
            member.name,
            entry,
            earlier,
        )
        require(
            log.term(log.committed) == entry.term,
            "a change before an entry of the leader's own term was committed",
            member.name,
            entry,
            log.committed,
        )


def voters(membership: Membership) -> set[tuple[str, int]]:
    """Return the voters with the ids under which they vote."""
    return {(voter, membership.id_of(voter)) for voter in membership.voters}


class AppliedOnce:
    """Each process of a member applies what follows its snapshot, without gap or repeat."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}

    def started(self, member: Member) -> None:
        """A new life begins at the beginning, or a snapshot was installed."""
        self.last[member.name] = member.snapshot_index

    def applied(self, member: Member, entry: Entry) -> None:
        """One more."""
        expected = self.last[member.name] + 1
        require(entry.index == expected, "applied out of order", member.name, expected, entry.index)
        self.last[member.name] = expected


class TimeAscends:
    """An entry's time is never below that of the one before it."""

    def __init__(self) -> None:
        self.last: dict[str, int] = {}

    def started(self, member: Member) -> None:
        """A new life begins at the beginning, or a snapshot was installed."""
        kept = member.disk.snapshot
        self.last[member.name] = kept.time_ms if kept is not None else 0

    def applied(self, member: Member, entry: Entry) -> None:
        """One more."""
        before = self.last[member.name]
        require(entry.time_ms >= before, "time went back", member.name, before, entry)
        self.last[member.name] = entry.time_ms


class Checkers:
    """All checkers, and the answers that clients received."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.election = ElectionSafety()
        self.votes = OneVote()
        self.candidate = Candidate()
        self.matching = LogMatching()
        self.acknowledgement = Acknowledgement()
        self.committed = Committed(world)
        self.configurations = Configurations(world)
        self.once = AppliedOnce()
        self.time = TimeAscends()
        self.highest_confirmed = 0
        self.told: dict[bytes, int] = {}
        self.messages = 0

    def started(self, member: Member) -> None:
        """Take note of a new process."""
        self.once.started(member)
        self.time.started(member)

    def ready(self, member: Member, ready: Ready) -> None:
        """Check a Ready that was taken and not carried out yet."""
        if ready.entries:
            self.matching.written(member, ready.entries)
            self.configurations.written(member, ready.entries)

    def sent(self, member: Member, message: Any) -> None:
        """Check a message that a member sends."""
        self.messages += 1
        if type(message) is AppendReply:
            self.acknowledgement.sent(member, message)
        elif type(message) is Vote:
            self.candidate.sent(member, message)
        elif type(message) is VoteReply and message.granted:
            self.votes.sent(member, message)

    def turned(self, member: Member) -> None:
        """Check a member after its turn."""
        self.acknowledgement.turned(member)
        self.committed.turned(member)

    def role(self, member: Member, soft: SoftState) -> None:
        """Check a change of a member's soft state."""
        self.world.note(soft.role.name, member.name, soft.term)
        self.election.role(member, soft)
        self.votes.role(member, soft)
        self.committed.role(member, soft)

    def applied(self, member: Member, entry: Entry) -> None:
        """Check an entry that a member applies."""
        self.committed.applied(member, entry)
        self.once.applied(member, entry)
        self.time.applied(member, entry)

    def confirmed(self, command: bytes, index: int) -> None:
        """Record that a client was told that its command is done."""
        self.world.note("confirmed", command, index)
        self.told[command] = index
        self.highest_confirmed = max(self.highest_confirmed, index)

    def read(self, member: Member, index: int, current: int) -> None:
        """Check a read: it sees everything that a client was told before it was requested."""
        require(index >= current, "a stale read", member.name, index, current)

    def finished(self) -> None:
        """Check the end: nothing confirmed is lost, nothing is done twice, all states are equal."""
        digests = {}
        for name, member in self.world.present():
            digests[name] = self.world.machine.snapshot(member.state)
            for command, index in self.told.items():
                done = member.state.done.get(command)
                require(done == index, "a confirmed command is lost", name, command, index, done)
            commands = [command for _, _, command in member.state.order]
            require(len(commands) == len(set(commands)), "done twice", name)
        require(len(set(digests.values())) == 1, "states differ", digests)
        self.world.note("digest", next(iter(digests.values())))

    def quiet(self) -> None:
        """Check that an idle group has no deadline on any member."""
        for name, member in self.world.present():
            assert member.node is not None
            require(member.node.deadline_ms is None, "an idle member has a deadline", name)
