"""What must hold in every world, one small checker per property.

They stand outside the code under test and see what no member can: all disks, all members at once.
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
    """At most one leader per term (Raft paper, figure 3), a node and the life of its log."""

    def __init__(self) -> None:
        self.leaders: dict[int, tuple[str, int]] = {}

    def role(self, member: Member, soft: SoftState) -> None:
        """A member's role changed."""
        if soft.role is Role.LEADER:
            who = (member.name, member.disk.member_id)
            known = self.leaders.setdefault(soft.term, who)
            require(known == who, "two leaders in a term", soft.term, known, who)


class OneVote:
    """A life of a member votes for one candidate per term, and remembers it through a crash.

    Whoever leads was voted for by a majority of the lives that its membership names.
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
        """A vote leaves."""
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
        """Entries go to a member's disk."""
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
    """A member vouches only for what its disk holds."""

    def sent(self, member: Member, message: AppendReply) -> None:
        """An append reply leaves."""
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
        """After a turn: the cursor of the core against the disk."""
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

    1. A asks for votes in term 5 with entries 8, 9 unsynced.  2. It crashes, comes back with 7 in
    term 4, and campaigns in term 5 again.  3. A vote for its first life arrives: it would lead with
    a log that the voter would have refused.
    """

    def sent(self, member: Member, message: Vote) -> None:
        """A request for a vote leaves."""
        disk = term_on_disk(member, message, "a vote is asked for in a term that is not on disk")
        # One that has found a leader of that term meanwhile, and cut its log for it, stands no
        # more: its term is on disk with its own vote, so no vote can elect it any more.
        if member.node is not None and member.node.role is Role.CANDIDATE:
            require(
                disk.safe.last_index() >= message.last_index,
                "a vote is asked for with entries that are not on disk",
                member.name,
                message,
            )


class Committed:
    """What is committed is on a majority's disks, and stays what it is.

    The majority is of the membership of whoever knows it first, and a voter's disk that of the life
    which is meant there: one that was lost since then counts, as it did when it acknowledged.

    entries  what was ever committed, in order
    terms    the term in which that was first known, of each
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.entries: list[Entry] = []
        self.terms: list[int] = []

    def turned(self, member: Member) -> None:
        """Whether the member believes more to be committed than was known."""
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
                # It came in this very turn, perhaps right after the commit.
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
        """A majority of those voters has it on disk, or had it on a disk that was lost since."""
        disks = [
            self.world.members[voter].disk.held_as(members.id_of(voter)) for voter in members.voters
        ]
        holders = sum(disk.holds(entry.index, entry.term) for disk in disks)
        return holders >= majority(len(disks))

    def role(self, member: Member, soft: SoftState) -> None:
        """Leader completeness: a leader holds what was committed in lower terms (figure 3).

        Not in higher ones: its votes may have been under way for so long that the next leader
        has committed already. Such a leader commits nothing.
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
        """State machine safety: what is applied at an index is the same everywhere (figure 3)."""
        # The member may be the first to know: `turned` has not seen its commit yet.
        if entry.index > len(self.entries):
            self.turned(member)
        require(
            entry.index <= len(self.entries), "applied before it is committed", member.name, entry
        )
        known = self.entries[entry.index - 1]
        require(known == entry, "applied differently", member.name, known, entry)


class Configurations:
    """Memberships change one voter at a time, each in effect from where it stands (thesis, 4.1)."""

    def __init__(self, world: World) -> None:
        self.world = world

    def written(self, member: Member, entries: tuple[Entry, ...]) -> None:
        """Entries go to a member's disk; the last of them is the end of its log."""
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
        """A snapshot names the members as of its last entry."""
        known = [m for place, m in self.world.roster.committed if place <= index][-1]
        require(
            members == known, "a snapshot names other members", member.name, index, members, known
        )

    def proposed(self, member: Member, entry: Entry) -> None:
        """A leader has begun a change: nothing may be open that another leader could complete."""
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
    """With the ids under which they vote."""
    return {(voter, membership.id_of(voter)) for voter in membership.voters}


class AppliedOnce:
    """Each life of a member applies what follows its snapshot, without gap or repeat."""

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
    """All of them, and what the clients were told."""

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
        """A process began."""
        self.once.started(member)
        self.time.started(member)

    def ready(self, member: Member, ready: Ready) -> None:
        """A Ready was taken, and not carried out yet."""
        if ready.entries:
            self.matching.written(member, ready.entries)
            self.configurations.written(member, ready.entries)

    def sent(self, member: Member, message: Any) -> None:
        """A message leaves a member."""
        self.messages += 1
        if type(message) is AppendReply:
            self.acknowledgement.sent(member, message)
        elif type(message) is Vote:
            self.candidate.sent(member, message)
        elif type(message) is VoteReply and message.granted:
            self.votes.sent(member, message)

    def turned(self, member: Member) -> None:
        """A member's turn is over."""
        self.acknowledgement.turned(member)
        self.committed.turned(member)

    def role(self, member: Member, soft: SoftState) -> None:
        """A member's soft state changed."""
        self.world.note(soft.role.name, member.name, soft.term)
        self.election.role(member, soft)
        self.votes.role(member, soft)
        self.committed.role(member, soft)

    def applied(self, member: Member, entry: Entry) -> None:
        """A member applies an entry."""
        self.committed.applied(member, entry)
        self.once.applied(member, entry)
        self.time.applied(member, entry)

    def confirmed(self, command: bytes, index: int) -> None:
        """A client was told that its command is done."""
        self.world.note("confirmed", command, index)
        self.told[command] = index
        self.highest_confirmed = max(self.highest_confirmed, index)

    def read(self, member: Member, index: int, current: int) -> None:
        """A read was answered: it sees what anybody was told before it was asked."""
        require(index >= current, "a stale read", member.name, index, current)

    def finished(self) -> None:
        """Everything is calm: nothing confirmed is lost, nothing is done twice, all are equal."""
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
        """A group with nothing to do has no deadline on any member."""
        for name, member in self.world.present():
            assert member.node is not None
            require(member.node.deadline_ms is None, "an idle member has a deadline", name)
