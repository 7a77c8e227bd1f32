"""Election safety, leader completeness and log matching."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from sim.checkers import require
from warren_raft.core.quorum import majority
from warren_raft.machine import Meta
from warren_raft.messages import AnyRaftMessage, Vote, VoteReply
from warren_raft.storage.group_log import GroupLog

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World


class Elections:
    """One leader per term, elected by a majority, which has everything that was committed.

    leaders  (group, term) -> the leader
    asked    (group, term, candidate, voter) -> the id that it was asked to vote under
    votes    (group, term, voter, its id) -> the candidate it was given to
    granted  (group, term, candidate) -> its voters, each with its id
    newest   group -> (index, term) of the last entry that any member has applied
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.leaders: dict[tuple[int, int], str] = {}
        self.asked: dict[tuple[int, int, str, str], int] = {}
        self.votes: dict[tuple[int, int, str, int], str] = {}
        self.granted: dict[tuple[int, int, str], dict[str, int]] = {}
        self.newest: dict[int, tuple[int, int]] = {}

    def sent(self, process: Process, message: AnyRaftMessage) -> None:
        """Check a vote that is sent: one per member and term, across restarts.

        A member is a node with the id of its log: after the loss of its disk it is another one.
        """
        if type(message) is Vote:
            self.asked[message.group, message.term, process.name, message.to] = message.member
        elif type(message) is VoteReply and message.granted:
            member = process.host._groups[message.group].node.member_id
            asked = self.asked[message.group, message.term, message.to, process.name]
            require(
                asked == member,
                "a vote by an identity that was not asked",
                process.name,
                message,
                asked,
                member,
            )
            place = (message.group, message.term, process.name, member)
            known = self.votes.setdefault(place, message.to)
            require(known == message.to, "two votes in a term", place, known, message.to)
            voters = self.granted.setdefault((message.group, message.term, message.to), {})
            voters[process.name] = member

    def leads(self, process: Process, group: int, term: int) -> None:
        """Check election safety and leader completeness (Raft paper, figure 3)."""
        known = self.leaders.setdefault((group, term), process.name)
        require(known == process.name, "two leaders in a term", group, term, known)
        node = process.host._groups[group].node
        members = node.membership
        granted = dict(self.granted.get((group, term, process.name), {}))
        granted[process.name] = node.member_id
        votes = [name for name in granted if members.votes(name, granted[name])]
        require(
            len(votes) >= majority(len(members.voters)),
            "elected without a majority",
            process.name,
            group,
            term,
            votes,
            members,
        )
        index, before = self.newest.get(group, (0, 0))
        if before >= term:
            return  # its votes were delayed for so long that the next leader has committed
        require(node.last_index >= index, "a leader lacks what was applied", group, term, index)
        if index >= process.host._groups[group].store.first_index():
            require(node.log.term(index) == before, "a leader has another entry", group, index)

    def applied(self, group: int, meta: Meta) -> None:
        """Record an applied entry, which was committed."""
        if meta.index > self.newest.get(group, (0, 0))[0]:
            self.newest[group] = (meta.index, meta.term)

    def logs_match(self) -> None:
        """Check that logs with an entry of one index and term are equal up to it (figure 3)."""
        stores: dict[int, list[tuple[str, GroupLog]]] = {}
        for name, machine in self.world.processes.items():
            process = machine.running
            if process is not None:
                for group, found in sorted(process.host._groups.items()):
                    if not found.volatile:
                        stores.setdefault(group, []).append((name, found.store.log))
        for group, logs in stores.items():
            for (one, a), (other, b) in pairwise(logs):
                self._match(group, one, a, other, b)

    def _match(self, group: int, one: str, a: GroupLog, other: str, b: GroupLog) -> None:
        first, last = max(a.first, b.first), min(a.last, b.last)
        equal = False
        for index in range(last, first - 1, -1):
            same = a.term(index) == b.term(index)
            require(same or not equal, "logs differ below an equal entry", group, index, one, other)
            equal = equal or same
            mine, theirs = a.entries.get(index), b.entries.get(index)
            if same and mine is not None and theirs is not None:
                require(mine == theirs, "entries differ", group, index, one, other)
