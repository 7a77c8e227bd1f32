"""A cluster, its clients and its misfortunes, all from one seed."""

from __future__ import annotations

from random import Random

from sim.checkers import Checkers, Violation
from sim.clients import Client
from sim.faults import Faults
from sim.ledger import Ledger
from sim.member import Member
from sim.network import Network
from sim.operator import Operator
from sim.profile import draw
from sim.roster import Roster
from sim.trace import BEGINNING_MS, Traced
from warren_raft.types import Membership

LIVENESS_MS = 60_000
IDLE_MS = 4_000


class World(Traced):
    """One run: a safety phase in which anything may break, a liveness phase in which nothing does.

    digest  of what happened, in order; a function of the seed alone
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.rng = Random(seed)
        self.profile = draw(self.rng)
        self.network = Network(self.agenda, Random(self.rng.randrange(1 << 48)), self.profile)
        founders = [f"n{at}" for at in range(1, self.profile.nodes + 1)]
        learners = founders[self.profile.nodes - self.profile.learners :]
        self.founders = Membership(
            tuple(name for name in founders if name not in learners), tuple(learners)
        )
        self.names = founders + [f"s{at}" for at in range(1, self.profile.spares + 1)]
        self.preferred = self.rng.choice((None, *self.founders.voters))
        self.roster = Roster(self, self.founders)
        self.machine = Ledger()
        self.contexts = 0
        self.checkers = Checkers(self)
        self.members = {name: Member(self, name) for name in self.names}
        for name, member in self.members.items():
            self.network.receivers[name] = member.receive
        share = self.profile.commands // self.profile.clients
        self.clients = [Client(self, at, share) for at in range(self.profile.clients)]
        self.faults = Faults(self)
        self.operator = Operator(self)

    def run(self) -> str:
        """The whole of it; returns the digest; raises Violation or what the code raises."""
        for name, member in self.members.items():
            if name in self.founders:
                member.start()
            else:
                member.disk.lose()
        for client in self.clients:
            client.begin()
        self.faults.begin()
        self.operator.begin()
        self.agenda.run_until(BEGINNING_MS + self.profile.safety_ms)
        self.operator.stop()
        self.faults.stop()
        limit = self.agenda.now_ms + LIVENESS_MS
        while not self.settled():
            if self.agenda.now_ms >= limit:
                raise Violation(f"no progress in {LIVENESS_MS} ms of calm: {self.describe()}")
            self.agenda.run_until(self.agenda.now_ms + 500)
        self.checkers.finished()
        self.idle()
        return self.trace.hexdigest()

    def books(self) -> tuple[int, int, int]:
        """Events run, faults, commands confirmed."""
        return self.agenda.run_count, self.faults.count, len(self.checkers.told)

    def settled(self) -> bool:
        """Return whether all is answered and applied, and the members are the expected ones."""
        if not all(client.finished for client in self.clients):
            return False
        nodes = [member.node for _, member in self.present()]
        ends = {node.last_index for node in nodes if node is not None}
        if len(ends) != 1 or not self.roster.whole():
            return False
        members = self.roster.latest
        return all(
            node is not None
            and node.applied == node.last_index
            and node.leader is not None
            and node.membership == members
            for node in nodes
        ) and not (members.learners and self.profile.config.promote_learners)

    def present(self) -> list[tuple[str, Member]]:
        """The members of the group, as it is committed."""
        return [(name, self.members[name]) for name in self.names if name in self.roster.latest]

    def idle(self) -> None:
        """With nothing to do, nothing is done."""
        self.operator.tidy()
        self.agenda.run_until(self.agenda.now_ms + IDLE_MS)
        self.checkers.quiet()
        before = self.checkers.messages
        self.agenda.run_until(self.agenda.now_ms + IDLE_MS)
        if self.checkers.messages != before:
            raise Violation(f"{self.checkers.messages - before} messages in an idle group")

    def describe(self) -> str:
        """Return the state of every member, for a failure's text."""
        lines = [f"clients {[(c.under_way, len(c.todo)) for c in self.clients]}"]
        for name, member in self.members.items():
            node = member.node
            if node is None:
                lines.append(f"{name} down")
            else:
                lines.append(
                    f"{name} {node.role.name} term {node.term} leader {node.leader} "
                    f"last {node.last_index} commit {node.commit} applied {node.applied} "
                    f"suspects {[o for o, s in member.suspects.items() if s]} "
                    f"deadline {node.deadline_ms} now {self.agenda.now_ms}"
                )
        return "; ".join(lines)
