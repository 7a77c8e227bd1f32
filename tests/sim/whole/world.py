"""A cluster of whole nodes, its people and its misfortunes, all from one seed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from random import Random
from typing import Any
from unittest.mock import patch

from sim.agenda import Agenda
from sim.checkers import Violation
from sim.whole.checkers import Checkers
from sim.whole.ledger import Ledger
from sim.whole.misfortunes import Misfortunes
from sim.whole.people import QUEUE, VHOST, Consumer, Person, Publisher, Reader, Sink
from sim.whole.process import Machine, Process
from sim.whole.sync import NoThreading, SimulatedJanitor, SimulatedWal
from sim.whole.wire import SimulatedTransport, Wire
from warren_broker.metadata import passwords
from warren_broker.metadata.commands import QueueIs
from warren_broker.queue.admin import counts
from warren_raft.config import RaftConfig
from warren_raft.runtime import host as host_module
from warren_raft.storage import log_store as log_store_module
from warren_raft.storage import wal as wal_module

BATCHES = 3
"""Of each sink."""
BEGINNING_MS = 1_700_000_000_000
CALM_MS = 90_000
IDLE_MS = 3_000


@dataclass(frozen=True, slots=True)
class Profile:
    """How bad the world is; times in milliseconds, (min, max) where there are two."""

    nodes: int
    safety_ms: int
    latency_ms: tuple[int, int]
    sync_ms: tuple[int, int]
    fault_every_ms: int
    messages: int
    publishers: int
    consumers: int
    readers: int
    sinks: int
    single_active: bool
    window: int
    pace_ms: int
    work_ms: int
    wal_file_bytes: int
    snapshot_entries_min: int
    retained_bytes_max: int
    memtable_bytes: int
    codec: bool
    config: RaftConfig


def draw(rng: Random) -> Profile:
    """A profile."""
    small = rng.random() < 0.3
    consumers, readers = rng.choice(((1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (0, 1), (0, 2)))
    return Profile(
        nodes=rng.choice((3, 3, 5)),
        safety_ms=rng.choice((3_000, 5_000)),
        latency_ms=rng.choice(((0, 2), (1, 10), (5, 40))),
        sync_ms=rng.choice(((1, 3), (2, 20), (5, 80))),
        fault_every_ms=rng.choice((0, 200, 400, 800)),
        messages=rng.choice((30, 80)),
        publishers=rng.choice((1, 2)),
        consumers=consumers,
        readers=readers,
        sinks=rng.choice((0, 0, 1, 2)),
        single_active=rng.random() < 0.2,
        window=rng.choice((1, 4, 16)),
        pace_ms=rng.choice((20, 80)),
        work_ms=rng.choice((5, 60, 400)),
        wal_file_bytes=rng.choice((2_000, 2_000, 6_000, 1 << 20)),
        snapshot_entries_min=rng.choice((1, 6, 64)),
        retained_bytes_max=rng.choice((0, 1_000, 1 << 20)),
        memtable_bytes=rng.choice((500, 1 << 20)),
        codec=rng.random() < 0.3,
        config=RaftConfig(
            append_bytes_max=300 if small else 1 << 20,
            probe_bytes_max=100 if small else 1 << 16,
            inflight_messages_max=rng.choice((1, 4)) if small else 128,
            inflight_bytes_max=600 if small else 16 << 20,
            retransmit_ms=rng.choice((300, 1_000)),
        ),
    )


class World:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed * 2 + 1)
        self.profile = draw(self.rng)
        self.trace = blake2b(digest_size=16)
        self.log: list[str] | None = None
        self.agenda = Agenda(BEGINNING_MS)
        self.names = [f"n{at}" for at in range(1, self.profile.nodes + 1)]
        self.ledger = Ledger()
        self.checkers = Checkers(self)
        self.wire = Wire(self)
        self.processes = {name: Machine(self, name) for name in self.names}
        share = self.profile.messages // self.profile.publishers
        self.publishers: list[Publisher | Sink] = [
            *(Publisher(self, at, share) for at in range(self.profile.publishers)),
            *(Sink(self, at, BATCHES) for at in range(self.profile.sinks)),
        ]
        self.people: list[Person] = [
            *self.publishers,
            *(Consumer(self, at) for at in range(self.profile.consumers)),
            *(Reader(self, at) for at in range(self.profile.readers)),
        ]
        self.misfortunes = Misfortunes(self)
        self.group = 0

    def note(self, *what: Any) -> None:
        """Something worth a line in the trace."""
        line = f"{self.agenda.now_ms - BEGINNING_MS} {what!r}"
        self.trace.update(line.encode())
        if self.log is not None:
            self.log.append(line)

    # ------------------------------------------------------------------ the run

    def run(self) -> str:
        """The whole of it; returns the digest; raises Violation or what the code raises."""
        with self.outside():
            try:
                return self.story()
            finally:
                for machine in self.processes.values():
                    if machine.running is not None:
                        machine.running.dead = True
                        machine.running.loop.close()

    def story(self) -> str:
        """Beginning, safety phase, liveness phase, end."""
        for machine in self.processes.values():
            machine.start()
        self.until("the queue is declared", self.declared)
        for person in self.people:
            person.again(100)
        self.misfortunes.begin()
        self.agenda.run_until(self.agenda.now_ms + self.profile.safety_ms)
        self.misfortunes.stop()
        self.until("everything is consumed", self.empty)
        self.ledger.close()
        self.until("all members have applied everything", self.level)
        self.checkers.finished()
        self.idle()
        return self.trace.hexdigest()

    def books(self) -> tuple[int, int, int]:
        """Events run, misfortunes, messages confirmed."""
        return self.agenda.run_count, self.misfortunes.count, len(self.ledger.confirmed)

    def until(self, what: str, holds: Any) -> None:
        """Run on until it holds, but not for ever."""
        limit = self.agenda.now_ms + CALM_MS
        while not holds():
            if self.agenda.now_ms >= limit:
                raise Violation(f"not after {CALM_MS} ms of calm: {what}; {self.describe()}")
            self.agenda.run_until(self.agenda.now_ms + 250)

    def declared(self) -> bool:
        """The queue is there; asks for it."""
        done = [
            machine.running is not None
            and machine.running.broker.definitions.state.queue(VHOST, QUEUE) is not None
            for machine in self.processes.values()
        ]
        process = self.processes["n1"].running
        assert process is not None
        if not any(done) and process.broker.definitions.ready:
            process.inject(lambda: self.declare(process))
        return all(done)

    def declare(self, process: Process) -> None:
        """In the node's turn; asking twice is harmless."""

        def answered(reply: Any) -> None:
            if not isinstance(reply, QueueIs):
                raise Violation(f"the queue was not declared: {reply}")
            self.group = reply.queue.group

        process.broker.declare_queue(
            VHOST, QUEUE, durable=True, exclusive=False, auto_delete=False,
            arguments={
                "x-queue-type": "quorum",
                "x-delivery-limit": -1,
                "x-single-active-consumer": self.profile.single_active,
            },
            connection=0, server_named=False, done=answered,
        )  # fmt: skip

    def members(self) -> list[Process]:
        """The processes that carry the queue."""
        running = [machine.running for machine in self.processes.values()]
        return [p for p in running if p is not None and self.group in p.host.groups()]

    def empty(self) -> bool:
        """Nobody has anything to publish, and nothing is in the queue."""
        if not all(publisher.finished for publisher in self.publishers):
            return False
        for process in self.members():
            if process.host.is_leader(self.group):
                found = counts(process.host.state(self.group))
                return not (
                    found.messages_ready + found.messages_unacknowledged + found.messages_claimed
                )
        return False

    def level(self) -> bool:
        """Everybody stands at the same entry, and nothing is under way."""
        for group in (0, self.group):
            nodes = [
                machine.running.host._groups[group].node
                for machine in self.processes.values()
                if machine.running is not None and group in machine.running.host.groups()
            ]
            if len({node.last_index for node in nodes}) > 1:
                return False
            if any(node.applied != node.last_index for node in nodes):
                return False
        return True

    def idle(self) -> None:
        """People leave; then nothing but heartbeats is on the wire, and no group has a deadline."""
        self.people.clear()
        self.agenda.events = [
            event for event in self.agenda.events if not hasattr(event[2], "__self__")
            or not hasattr(event[2].__self__, "again")
        ]  # fmt: skip
        self.agenda.run_until(self.agenda.now_ms + IDLE_MS)
        for machine in self.processes.values():
            assert machine.running is not None
            for number in machine.running.host.groups():
                node = machine.running.host._groups[number].node
                if node.deadline_ms is not None:
                    raise Violation(f"idle group {number} has a deadline on {machine.name}")

    def describe(self) -> str:
        """Where everybody stands."""
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
            for group, client in process.cluster.clients.items():
                uplink = client.uplink
                lines.append(
                    f"{name} uplink {group}: {len(uplink.unanswered)} unanswered, "
                    f"sent {uplink.sent_seq}, next {uplink.next_seq}, seeking {client.seeking}"
                )
        for number, publisher in enumerate(self.publishers):
            lines.append(f"publisher {number}: left {publisher.left}")
        return "; ".join(lines)

    # ------------------------------------------------------------------ the outside

    @contextmanager
    def outside(self) -> Iterator[None]:
        """What whole nodes find in the place of threads, sockets and true chance."""
        def transport(config: Any, loop: Any, boot_id: int, owner: Any) -> SimulatedTransport:
            return SimulatedTransport(self, config)

        def wal(files: Any, *args: Any, **named: Any) -> SimulatedWal:
            machine = next(m for m in self.processes.values() if m.files is files)
            process = machine.running
            assert process is not None
            return SimulatedWal(
                process.after_sync, lambda: machine.rng.randrange(1 << 32), files, *args, **named
            )

        def janitor(post: Any, path: Any) -> SimulatedJanitor:
            machine = next(
                m for m in self.processes.values()
                if m.running is not None and m.running.loop.post == post
            )
            process = machine.running
            assert process is not None
            process.janitor = SimulatedJanitor(
                process.after_sync, lambda: self.checkers.rewritten(process), post, path
            )
            return process.janitor

        with ExitStack() as stack:
            logging.disable(logging.CRITICAL)
            stack.callback(logging.disable, logging.NOTSET)
            stack.enter_context(patch.object(host_module, "Transport", transport))
            stack.enter_context(patch.object(log_store_module, "Wal", wal))
            stack.enter_context(patch.object(log_store_module, "Janitor", janitor))
            stack.enter_context(patch.object(wal_module, "threading", NoThreading))
            stack.enter_context(
                patch.object(passwords, "hash_password", lambda password, salt: "hash")
            )
            stack.enter_context(patch("warren_broker.cluster.broker.random", self.rng))
            yield
