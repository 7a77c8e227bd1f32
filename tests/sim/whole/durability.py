"""Messages may acknowledge only what the disk holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sim.checkers import require
from sim.whole.ledger import Book
from warren_raft.core.quorum import majority
from warren_raft.messages import AnyRaftMessage, AppendReply, VoteReply
from warren_raft.runtime import log_identity
from warren_raft.storage.recovered_group import RecoveredGroup

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

REPLY_EVERY = 40
"""Every n-th append reply is checked, because there are many."""
CONFIRM_EVERY = 12


class Durability:
    """Durable before acknowledged: votes, terms and entries, and a publisher's confirm.

    acknowledged  (node, group, member id) -> the term and the index of its last append reply
    voted         (node, group, member id) -> the term and the candidate of its last vote
    judged        number of logs with known acknowledgements that were checked at a start
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.acknowledged: dict[tuple[str, int, int], tuple[int, int]] = {}
        self.voted: dict[tuple[str, int, int], tuple[int, str]] = {}
        self.judged = 0
        self.replies = 0
        self.confirms = 0

    def sent(self, process: Process, message: AnyRaftMessage) -> None:
        """Check that recovery after a power failure would find what the message acknowledges."""
        if type(message) in (VoteReply, AppendReply):
            require(not process.machine.aged, "an older copy vouches", process.name, message)
        self.vouches(process, message)
        if process.machine.damaged:
            return
        if type(message) is VoteReply:
            if message.granted:
                hard_state, _ = self.world.checkers.directories.recovered(process, message.group)
                require(
                    hard_state.term > message.term
                    or (hard_state.term, hard_state.vote) == (message.term, message.to),
                    "a vote leaves before it is on disk",
                    process.name,
                    message,
                    hard_state,
                )
        elif type(message) is AppendReply and message.ok:
            self.replies += 1
            if self.replies % REPLY_EVERY == 0:
                directories = self.world.checkers.directories
                hard_state, log = directories.recovered(process, message.group)
                require(hard_state.term >= message.term, "a term not on disk", message)
                if hard_state.term == message.term:
                    require(
                        log is not None and log.last >= message.index,
                        "acknowledged before it is on disk",
                        process.name,
                        message,
                    )

    def vouches(self, process: Process, message: AnyRaftMessage) -> None:
        """Record what a member acknowledges."""
        if type(message) is VoteReply and message.granted:
            member = process.host._groups[message.group].node.member_id
            self.voted[process.name, message.group, member] = (message.term, message.to)
        elif type(message) is AppendReply and message.ok:
            member = process.host._groups[message.group].node.member_id
            key = (process.name, message.group, member)
            before = self.acknowledged.get(key, (0, 0))
            self.acknowledged[key] = max(before, (message.term, message.index))

    def started(self, process: Process) -> None:
        """Check a node after recovery, before any group has started.

        Whatever happened to its disk: a member under its old id has what it acknowledged.

        In a later term its log may have been truncated since by a leader of that term. Only its
        peers can detect an older copy of its directory: before it acknowledges anything else.
        """
        if not process.machine.aged:
            self.vouched(process.name, process.host._logs.groups, "start")

    def vouched(self, name: str, groups: Mapping[int, RecoveredGroup], where: str) -> None:
        """Check that a node's groups, as recovered from its disk, have what it acknowledged."""
        for group, found in sorted(groups.items()):
            key = (name, group, log_identity.decode(group, found.created).member)
            hard, last = found.hard_state, found.log.last
            term, index = self.acknowledged.get(key, (0, 0))
            self.judged += key in self.acknowledged or key in self.voted
            require(
                hard.term >= term and (hard.term > term or last >= index),
                "started without what it acknowledged",
                where,
                key,
                hard,
                last,
                term,
                index,
            )
            term, candidate = self.voted.get(key, (0, ""))
            require(
                hard.term > term
                or (hard.term, hard.vote or "") == (term, candidate)
                or key not in self.voted,
                "started without its vote",
                where,
                key,
                hard,
                term,
                candidate,
            )

    def confirmed(self, book: Book, bodies: list[bytes]) -> None:
        """Check a publisher's confirm: its entry is on the disks of a majority."""
        self.confirms += 1
        if self.confirms % CONFIRM_EVERY or book.plan.volatile or book.doomed:
            return
        group, checkers = book.group, self.world.checkers
        index = next(
            (i for (g, i), held in checkers.bodies.items() if g == group and bodies[0] in held), 0
        )
        require(index > 0, "confirmed, and no node has applied it", group, bodies[0])
        # 1. n1, n2 and n3 are members; n1 and n2 have entry 141.  2. The leader appends the removal
        # of n1 to its log: 142 is in effect, and not committed.  3. A node learns that 141 is
        # committed. Of n2 and n3 only n2 has it, and no leader without it can be elected: by 142 n3
        # votes only when it has that, and 141 before it. Other nodes may know 142 alone, or nothing
        # of it. So one of the memberships since the entry has a majority with it.
        # An unlucky disk may have lost it after the acknowledgement: the others suffice.
        held = {
            members: [
                name
                for name in members
                if name in self.world.profile.unlucky
                or checkers.directories.holds(self.world.processes[name], group, index)
            ]
            for members in self._memberships_since(group, index)
        }
        require(
            not held or any(len(has) >= majority(len(voters)) for voters, has in held.items()),
            "confirmed without a majority on disk",
            group,
            index,
            held,
        )

    def _memberships_since(self, group: int, index: int) -> list[tuple[str, ...]]:
        """Return the voters of each membership in effect since that entry, as any member has them.

        None: the members that have applied the entry were stopped since.
        """
        found: dict[tuple[str, ...], None] = {}
        for machine in self.world.processes.values():
            process = machine.running
            if process is None or group not in process.host._groups:
                continue
            node = process.host._groups[group].node
            if node.applied < index:
                continue
            then = node.configs.at(max(index, node.configs.base_index))
            later = [each for place, each in node.configs.entries if place > index]
            found |= dict.fromkeys(each.voters for each in [then, *later] if each is not None)
        return list(found)
