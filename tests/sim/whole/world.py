"""A cluster of whole nodes, its people and its misfortunes, all from one seed."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from sim.checkers import Violation, require
from sim.trace import Traced
from sim.whole.awaiters import RESULTS, Awaiter
from sim.whole.calm import Calm
from sim.whole.carriers import Carrier
from sim.whole.checkers import Checkers
from sim.whole.consumers import Consumer, Getter
from sim.whole.importers import Importer
from sim.whole.ledger import Ledger
from sim.whole.loners import Loner
from sim.whole.misfortunes import Misfortunes
from sim.whole.operators import Binder, Declarer, Ender, Operator, Retrier, Vanisher, is_due
from sim.whole.outside import outside
from sim.whole.people import VHOST, Person
from sim.whole.policymakers import Policymaker, are_followed
from sim.whole.process import Machine, Process
from sim.whole.profile import DUE, MADE, SIFTED, TARGET, draw
from sim.whole.programs import Programs
from sim.whole.publishers import Delayer, Feeder, Publisher, Resender
from sim.whole.readers import Reader
from sim.whole.registrars import Registrar
from sim.whole.settlers import Settler
from sim.whole.sieves import SIEVES
from sim.whole.sinks import Sink
from sim.whole.wire import Wire
from warren_machines.queue.whole_queue import counts
from warren_raft.types import METADATA_GROUP

BATCHES = 2
"""Of each sink."""
FEED = 100
"""Messages for a queue that keeps its dead letters, where their target vanishes."""
HUNG_MS = 5_000
"""A sync that takes longer has cost its node every leadership."""
IDLE_MS = 6_000
QUIET_MS = 400
LOOK_AGAIN_MS = 100
LOOK_MS = 300


class World(Traced):
    """One run: people and misfortunes, then a calm in which everything must come to its end.

    calm    no more misfortunes
    plans   of the queues, by name
    decided  how claims that batches should settle ended
    digest  of what happened, in order; a function of the seed alone
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self.rng = Random(seed * 2 + 1)
        self.profile = draw(self.rng)
        count = self.profile.nodes + self.profile.joiners
        self.names = [f"n{at}" for at in range(1, count + 1)]
        self.addresses = {name: f"10.0.0.{at}" for at, name in enumerate(self.names, 1)}
        self.plans = {plan.name: plan for plan in self.profile.queues}
        self.ledger = Ledger(self.profile.claim_ttl_ms > 0)
        self.checkers = Checkers(self)
        self.wire = Wire(self)
        self.programs = Programs(self)
        self.processes = {name: Machine(self, name) for name in self.names}
        self.publishers: list[Publisher | Sink] = []
        self.declarer = Declarer(self)
        self.people: list[Person] = self._people()
        self.misfortunes = Misfortunes(self)
        self.decided: Counter[str] = Counter()
        self.calm = False

    def _people(self) -> list[Person]:
        profile = self.profile
        plain, *others = profile.queues
        share = profile.messages // profile.publishers
        self.publishers += [Publisher(self, at, plain, share) for at in range(profile.publishers)]
        self.publishers += [Sink(self, at, plain, BATCHES) for at in range(profile.sinks)]
        people: list[Person] = [*self.publishers]
        people += [Consumer(self, at, plain) for at in range(profile.consumers)]
        people += [
            Reader(self, at, plain, "reader" if profile.rivals else f"reader-{at}")
            for at in range(profile.readers)
        ]
        carriers = [Carrier(self, at, plain) for at in range(profile.carriers)]
        people += [Settler(self, at, plain, f"settler-{at}") for at in range(profile.settlers)]
        people += [Getter(self, at, profile.queues[-1]) for at in range(profile.getters)]
        people += [Consumer(self, 10 + at, plan) for at, plan in enumerate(others)]
        people += [Loner(self, at) for at in range(profile.loners)]
        people += [Registrar(self, 0)] if profile.changes else []
        people += [Retrier(self, at, plan) for at, plan in enumerate(others) if plan.delays]
        people += [Binder(self, at, plan) for at, plan in enumerate(others) if plan.name == TARGET]
        people += [Operator(self, at, plan) for at, plan in enumerate(others) if plan.swept]
        fed = [plan for plan in others if plan.keeps and profile.vanishing]
        feeders = [Feeder(self, 20 + at, plan, FEED) for at, plan in enumerate(fed)]
        self.publishers += feeders
        people += [*feeders, *(Vanisher(self, at, self.plans[TARGET]) for at in range(len(fed)))]
        people += [Policymaker(self, at) for at in range(2)] if profile.policies else []
        if profile.later:
            delayers = [Delayer(self, at, profile.messages) for at in range(2)]
            self.publishers += delayers
            people += [*delayers, Ender(self, 0)]
        people += [Importer(self, 0)] if profile.imports else []
        people += [Awaiter(self, at) for at in range(profile.awaiters)]
        people += carriers
        for plan in others:
            if plan.once:
                resenders = [Resender(self, at, plan, profile.messages) for at in range(2)]
                self.publishers += resenders
                people += resenders
        return people

    # ------------------------------------------------------------------ the run

    def run(self) -> str:
        """The whole of it; returns the digest; raises Violation or what the code raises."""
        with outside(self):
            try:
                return self.story()
            finally:
                for machine in self.processes.values():
                    if machine.running is not None:
                        machine.running.dead = True
                        machine.running.loop.close()

    def story(self) -> str:
        """Beginning, safety phase, liveness phase, end."""
        founders = self.names[: self.profile.nodes]
        for name, machine in self.processes.items():
            if name in founders:
                self.agenda.after(self.rng.choice((0, 0, 0, 0, 50, 700)), machine.start)
            else:
                machine.absent = True
        self.declarer.act()
        self.until("the queues are declared", self.declared)
        for person in self.people:
            person.again(100)
        self.misfortunes.begin()
        self.programs.begin()
        self.checkers.reads.ask_everywhere()
        for name in self.names[self.profile.nodes :]:
            self.agenda.after(
                self.rng.randrange(self.profile.safety_ms), self.processes[name].start
            )
        end = self.agenda.now_ms + self.profile.safety_ms
        while self.agenda.now_ms < end:
            self.agenda.run_until(min(end, self.agenda.now_ms + LOOK_MS))
            self.checkers.looked_at()
        self.misfortunes.stop()
        self.calm = True
        for at, plan in enumerate(self.profile.queues):
            sieves = range(len(SIEVES)) if plan.name == SIFTED else (None,)
            for sieve in sieves:
                steady = Consumer(self, 100 + at + 50 * (sieve or 0), plan, True, sieve)
                self.people.append(steady)
                steady.again(400)
        self.until("everything is consumed", self.empty)
        self.ledger.close()
        self.check_decisions()
        self.until("operators are done", self.kept)
        self.until("queues follow their policies", lambda: are_followed(self))
        self.until("all results are there", self.awaited)
        self.leave()
        self.until("every member votes", self.everybody_votes)
        self.until("every submission is answered, all members have applied everything", self.level)
        self.checkers.finished(self.groups())
        if self.profile.bad:
            self.agenda.run_until(self.agenda.now_ms + HUNG_MS)
        self.nothing_hangs()
        if not self.profile.bad:
            self.idle()
        return self.trace.hexdigest()

    def nothing_hangs(self) -> None:
        """Check that no node leads while its disk has not answered for long."""
        for name, machine in self.processes.items():
            process = machine.running
            if process is None or process.wal is None or process.wal.job is None:
                continue
            for group in process.host.groups():
                require(
                    self.agenda.now_ms - process.wal.since < HUNG_MS
                    or not process.host.is_leader(group)
                    or len(process.host.members(group).voters) < 3,
                    "a leader's disk hangs",
                    name,
                    group,
                    process.wal.since,
                )

    def check_decisions(self) -> None:
        """Check that each claim that a batch should settle has one end."""
        books = {book.plan.name: book for book in self.ledger.books.values()}
        for person in self.people:
            if isinstance(person, Settler) and person.plan.name in books and MADE in books:
                person.close(books[person.plan.name], books[MADE])

    def books(self) -> tuple[int, int, int]:
        """Events run, misfortunes, messages confirmed."""
        return self.agenda.run_count, self.misfortunes.count, self.ledger.confirmed

    def until(self, what: str, holds: Any) -> None:
        """Run on until it holds, but not for ever."""
        began, calm = self.agenda.now_ms, Calm(self)
        while not holds():
            if calm.is_over():
                took = self.agenda.now_ms - began
                raise Violation(f"not after {took} ms of calm: {what}; {self.describe()}")
            self.agenda.run_until(self.agenda.now_ms + LOOK_AGAIN_MS)

    def declared(self) -> bool:
        """Every node that is there knows of every queue."""
        return all(
            machine.absent
            or machine.gone
            or machine.lost_for_good
            or (
                machine.running is not None
                and machine.running.broker.definitions.ready
                and machine.running.broker.definitions.state.queue(VHOST, name) is not None
                and (name not in DUE or is_due(machine.running, name))
            )
            for machine in self.processes.values()
            for name in self.plans
        )

    def groups(self) -> list[int]:
        """Every group that has a member somewhere, ascending."""
        return sorted(
            {
                group
                for machine in self.present().values()
                if machine.running is not None
                for group in machine.running.host.groups()
            }
        )

    def present(self) -> dict[str, Machine]:
        """The machines that have not left, and will be well again, by name."""
        return {
            name: machine
            for name, machine in self.processes.items()
            if not machine.gone and not machine.lost_for_good
        }

    def members(self, group: int, every: bool = False) -> list[Process]:
        """The processes that carry a group; every: those of nodes that never become well, too."""
        machines = self.processes if every else self.present()
        running = [machine.running for machine in machines.values()]
        return [p for p in running if p is not None and group in p.host.groups()]

    def empty(self) -> bool:
        """Return whether no client has anything to publish, and nothing is in any queue."""
        if not self.declared() or not all(publisher.finished for publisher in self.publishers):
            return False
        for machine in self.present().values():
            if machine.running is None:
                return False
            for queue in machine.running.broker.definitions.state.queues():
                if set(queue.nodes) <= set(self.profile.bad):
                    continue  # it is gone with its node
                leader = self.newest_leader(queue.group)
                if leader is None or not self._is_empty(leader, queue.group):
                    return False
        return True

    def newest_leader(self, group: int) -> Process | None:
        """Return the leader of the highest term; None: there is none.

        1. A leader dozes, or is cut off.  2. Others elect another one, which gets messages.  3. The
        first one still holds itself for the leader of a queue without messages.
        """
        leaders = [one for one in self.members(group, every=True) if one.host.is_leader(group)]
        return max(leaders, key=lambda one: one.host.term(group), default=None)

    def _is_empty(self, process: Process, group: int) -> bool:
        found = counts(process.host.state(group))
        held = found.messages_unacknowledged + found.messages_claimed
        waiting = found.messages_delayed + found.messages_dlx
        return not (found.messages_ready + held + waiting)

    def leave(self) -> None:
        """People go home: what they had still planned is not done."""
        self.people.clear()
        self.agenda.drop(lambda act: hasattr(getattr(act, "__self__", None), "again"))

    def kept(self) -> bool:
        """Return whether nothing is drained and no node is half out.

        What was answered with `Unavailable` may come yet: see `are_followed`.
        """
        registrars = [one for one in self.people if isinstance(one, Registrar)]
        return all(one.finished for one in registrars) and (
            not registrars or self.answered(METADATA_GROUP)
        )

    def awaited(self) -> bool:
        """Return whether every client has its results, and the queues for them are deleted."""
        awaiters = [one for one in self.people if isinstance(one, Awaiter)]
        for one in awaiters:
            if not one.over and one.finished:
                one.leave()
        return all(one.over for one in awaiters) and not any(
            queue.name.startswith(RESULTS)
            for machine in self.present().values()
            if machine.running is not None
            for queue in machine.running.broker.definitions.state.queues()
        )

    def everybody_votes(self) -> bool:
        """Return whether every queue has its wanted members, as voters, and nothing is changing."""
        if not all(self.checkers.memberships.everybody_votes(group) for group in self.groups()):
            return False
        for machine in self.present().values():
            if machine.running is None:
                return False
            voters = machine.running.host.members(METADATA_GROUP).voters
            if [name for name in voters if name not in self.profile.bad] != [*self.present()]:
                return False
            if self.profile.bad:
                continue
            for queue in machine.running.broker.definitions.state.queues():
                names = [process.name for process in self.members(queue.group)]
                if names != sorted(queue.nodes):
                    return False
        return True

    def level(self) -> bool:
        """Return whether all nodes are there, at the same entry, and nothing is under way."""
        if any(machine.running is None for machine in self.present().values()):
            return False
        for group in self.groups():
            nodes = [process.host._groups[group].node for process in self.members(group)]
            if len({node.last_index for node in nodes}) > 1:
                return False
            if any(node.applied != node.last_index or node.leader is None for node in nodes):
                return False
        return bool(self.profile.bad) or self.answered()

    def answered(self, only: int | None = None) -> bool:
        """Whatever a node has submitted to a group that exists was applied, and it knows.

        only  look at that group
        """
        groups = self.groups() if only is None else [only]
        return not any(
            client.uplink.unanswered or client.uplink.waiting
            for machine in self.present().values()
            if machine.running is not None
            for group, client in machine.running.cluster.clients.items()
            if group in groups
        )

    def idle(self) -> None:
        """With nothing to do nothing is done but heartbeats; soon no group has a deadline."""
        limit = self.agenda.now_ms + IDLE_MS
        quiet_ms = 0
        while quiet_ms < QUIET_MS:
            busy = self.busy()
            if self.agenda.now_ms >= limit:
                raise Violation(f"an idle group has a deadline: {busy}")
            quiet_ms = quiet_ms + LOOK_AGAIN_MS if busy is None else 0
            self.agenda.run_until(self.agenda.now_ms + LOOK_AGAIN_MS)

    def busy(self) -> str | None:
        """A group with a deadline, on some node; None: there is none."""
        for name, machine in self.present().items():
            if machine.running is None:
                return f"{name} is down"
            for number in machine.running.host.groups():
                if machine.running.host._groups[number].node.deadline_ms is not None:
                    return f"{name}/{number}"
        return None

    def describe(self) -> str:
        """Return the state of every process, for a failure's text."""
        lines = []
        for name, machine in self.processes.items():
            process = machine.running
            if process is None:
                lines.append(f"{name} down")
                continue
            for number in process.host.groups():
                node = process.host._groups[number].node
                lines.append(
                    f"{name}/{number} {node.role.name} term {node.term} leader {node.leader} "
                    f"last {node.last_index} commit {node.commit} applied {node.applied}"
                )
                if number and process.host.is_leader(number):
                    lines.append(f"{name}/{number} {counts(process.host.state(number))}")
            for group, client in process.cluster.clients.items():
                uplink = client.uplink
                lines.append(
                    f"{name} uplink {group}: {len(uplink.unanswered)} unanswered, "
                    f"sent {uplink.sent_seq}, next {uplink.next_seq}, seeking {client.seeking}"
                )
        for number, publisher in enumerate(self.publishers):
            lines.append(f"publisher {number}: left {publisher.left}")
        return "; ".join(lines)
