"""A query with messages that make it fail, on the queue machine: Spark's logs, a sink, kills."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.claims.plan import GivenUp
from pyspark_warren.options.options import parse_options
from pyspark_warren.surroundings import Surroundings
from spark_world.fake import quorum_queue
from spark_world.fake_reader import TwoAtOnce, take, told
from spark_world.offsets import only, text
from tests.machines.queue.world import Queue as Machine
from tests.machines.queue.world import config
from warren import errors
from warren.admin import Queue, Reader
from warren.claims import Claim, ClaimSlice, ReaderStep, Registration
from warren_machines.queue import commands as c
from warren_machines.queue.claims import claim as claims
from warren_machines.queue.claims import decision_commands as d
from warren_machines.queue.effects import DeadLetter
from warren_wire.queue_values.give_up_command import ORIGINS, GiveUpClaim

Name = tuple[int, int]
NEVER = 1 << 40
_KINDS = {
    "claim_lost": errors.ClaimLost,
    "unknown_reader": errors.ClaimLost,
    "fenced": errors.Fenced,
    "failed_in_row": errors.Conflict,
}


class Died(Exception):
    """The driver ends here."""


class MachineReader(TwoAtOnce):
    """`port.Reader` on the machine."""

    def __init__(self, world: PoisonWorld, name: str) -> None:
        self.world, self.name, self.epoch = world, name, 0

    def register(self, *, go_on_after: int = 0, expires_ms: int = 0) -> Registration:
        reply = self.world.ask(c.RegisterReader(self.name, go_on_after))
        self.epoch = reply.epoch
        return Registration(reply.epoch, reply.settled, reply.starts)

    def open(self, number: int, *, max_messages: int, max_bytes: int, **more: Any) -> Claim:
        keep_empty = more.get("keep_empty", False)
        ttl_ms = more.get("ttl_ms", 0)
        reply = self.world.ask(
            c.OpenClaim(self.name, number, self.epoch, max_messages, max_bytes, ttl_ms, keep_empty)
        )
        if isinstance(reply, c.EmptyClaim):
            return Claim(reply.number, 0, 0, True)
        origin = ORIGINS[reply.origin]
        return Claim(number, reply.messages, reply.size_bytes, reply.messages > 0, origin)

    def settle(self, number: int) -> int:
        return int(self.world.ask(c.SettleClaims(self.name, number, self.epoch)).messages)

    def renew(self) -> None:
        self.world.ask(c.RenewClaims(self.name, self.epoch))

    def release(self, number: int = 0, *, failed: bool = False) -> int:
        command = c.ReleaseClaim(self.name, number, self.epoch, failed)
        return int(self.world.ask(command).messages)


class PoisonWorld:
    """A queue, one query with its checkpoint, and a sink that fails on the messages at fault.

    sink      file: it skips a batch that it has, and runs no task of it, as Spark's file sink does;
              settling: publishing a batch settles its claim, as option settleWithBatch has it
    dies_in   the next run ends at that many steps from now: requests, their answers, the sink's
    down      the sink takes nothing
    """

    def __init__(self, sink: str = "file", queue: dict[str, Any] | None = None, **options: str):
        self.machine = Machine(config(**{"dead_letter_exchange": "dlx", **(queue or {})}))
        self.sink = sink
        self.given = {
            "queue": "q",
            "readerId": "r",
            "onBatchFailure": "reject",
            "isolatePoison": "true",
            "maxMessagesPerTrigger": "100",
            **({"settleWithBatch": "true"} if sink == "settling" else {}),
            **options,
        }
        self.poison: set[Name] = set()
        self.dead: list[Name] = []
        self.offsets: list[str] = []
        self.committed = 0
        self.written: dict[int, list[Name]] = {}
        self.closed: set[int] = set()
        self.dies_in = NEVER
        self.down = False
        self.runs = self.failures = 0
        self.backlog: dict[str, Any] = {}
        self.shuffle: Random | None = None

    # ---------------------------------------------------------------- the queue

    def put(self, count: int, bad: tuple[int, ...] = (), **shape: Any) -> int:
        """Publish a block with some messages at fault; return its index."""
        index = self.machine.put(count, **shape)
        self.poison |= {(index, at) for at in bad}
        return index

    def step(self) -> None:
        """A point at which the driver may end."""
        if self.dies_in <= 0:
            raise Died
        self.dies_in -= 1

    def ask(self, command: c.AnyCommand) -> Any:
        self.step()
        reply = self.apply(command)
        self.step()
        if isinstance(reply, c.Refused):
            raise _KINDS.get(reply.reason, errors.PeerError)(reply.detail, status=409)
        return reply

    def apply(self, command: c.AnyCommand) -> Any:
        if self.shuffle is not None and self.shuffle.random() < 0.1:
            self.machine.state = self.machine.machine.restore(self.machine.digest())
        reply = self.machine.do(command)
        for effect in self.machine.of(DeadLetter):
            for index, first, last in effect.runs:
                self.dead += [(index, at) for at in range(first, last + 1)]
        return reply

    # ---------------------------------------------------------------- port.Broker

    def queue(self, name: str) -> Queue:
        self.step()
        stat = self.machine.stat()
        return quorum_queue(
            name,
            messages_ready=stat.messages_ready,
            messages_claimed=stat.messages_claimed,
            bytes_ready=stat.bytes_ready,
            arguments={"x-dead-letter-exchange": "dlx"},
            readers=tuple(
                Reader(
                    of.name,
                    of.epoch,
                    of.settled,
                    of.open_claims,
                    of.heard_ms,
                    in_parts=of.in_parts,
                    part_due=of.part_due,
                    failed_in_row=of.failed_in_row,
                    starts=of.starts,
                )
                for of in stat.readers
            ),
        )

    def reader(self, queue: str, reader: str) -> MachineReader:
        return MachineReader(self, reader)

    def take_steps(self, steps: Sequence[ReaderStep]) -> list[Any]:
        return [told(take, self.reader, step) for step in steps]

    def browse(self, queue: str, most: int, areas: int = 0) -> Iterator[Any]:
        for run in self.machine.state.order:
            yield SimpleNamespace(runs=(run,))
            return

    def fetch_slices(self, slices: Sequence[ClaimSlice], areas: int) -> Iterator[Any]:
        for at, part in enumerate(slices):
            wanted = part.reader, part.number, part.first, part.last
            runs = claims.claim_slice(self.machine.state, *wanted)
            if runs is None:
                raise errors.ClaimLost("not open", status=410)
            yield at, SimpleNamespace(runs=runs)

    def view(self, *asked: Any) -> Iterator[Any]:
        return iter(())

    def give_up(self, queue: str, reader: str, number: int, how: GivenUp) -> int:
        """As `admin.claims` does it: a bound claim is decided about first."""
        command = GiveUpClaim(reader, number, how.epoch, how.way, how.in_row_max, how.drop)
        while isinstance(reply := self.ask(command), d.BoundClaim):
            batch = reply.binding.batch
            if batch not in self.written:
                self.closed.add(batch)
            self.ask(d.ResolveClaim(reader, number, reply.binding, batch in self.written))
        return int(reply.messages)

    # ---------------------------------------------------------------- the query

    def run(self, dies_in: int = NEVER) -> bool:
        """Run until nothing is ready or it fails; return whether nothing was left to read."""
        self.runs += 1
        self.dies_in = dies_in
        broker: Any = self
        options = parse_options(self.given, "read")
        driver = ClaimDriver(broker, options, Surroundings(lambda: 0, lambda _: None, lambda: "r"))
        try:
            at = self.stored(self.committed - 1) if self.committed else driver.initial()
            while True:
                if len(self.offsets) == self.committed:
                    end = driver.latest(at, options.max_messages)
                    self.backlog = driver.backlog()
                    if end == at and at.registered and self.offsets:
                        return True
                    self.step()
                    self.offsets.append(text(end))
                    self.step()
                end = self.stored(self.committed)
                if not self.batch(driver, at, end):
                    self.failures += 1
                    return False
                at = end
        except Died:
            return False
        finally:
            self.dies_in = NEVER

    def batch(self, driver: ClaimDriver, at: Offset, end: Offset) -> bool:
        number = self.committed
        planned = driver.plan(at, end)
        if self.sink == "file" and number in self.written:
            rows = None
        else:
            rows = []
            for part in planned:
                self.step()
                if part.given_up is not None:
                    self.give_up("q", part.reader, part.number, part.given_up)
                    continue
                runs = claims.claim_slice(
                    self.machine.state, part.reader, part.number, part.first, part.last
                )
                assert runs is not None, "a task found no claim"
                found = [(i, n) for i, low, high, *_ in runs for n in range(low, high + 1)]
                assert len(found) == part.last - part.first, "other rows than were planned"
                rows += found
            if rows and (self.down or self.poison & set(rows)):
                return False
        if rows:
            self.write(number, end, rows)
        self.step()
        self.committed += 1
        self.step()
        return True

    def write(self, number: int, end: Offset, rows: list[Name]) -> None:
        self.step()
        if self.sink == "file":
            self.written[number] = rows
            return
        epoch = self.machine.state.readers[only(end).reader].epoch
        binding = d.ClaimBinding("out", 7, "s", "r", number, 1)
        self.ask(d.BindClaim(only(end).reader, only(end).number, epoch, binding))
        assert number not in self.closed, "a batch was closed, and is published with rows"
        assert self.written.setdefault(number, rows) == rows, "a batch was published otherwise"
        self.step()
        self.ask(d.ResolveClaim(only(end).reader, only(end).number, binding, True))

    def stored(self, batch: int) -> Offset:
        return Offset.from_dict(json.loads(self.offsets[batch]))

    def until_done(self, runs_max: int = 300) -> None:
        """Start the query again and again, as what restarts it does."""
        first = self.runs
        while not self.run():
            assert self.runs - first < runs_max, (runs_max, self.machine.stat())

    # ---------------------------------------------------------------- what came of it

    def rows(self) -> list[Name]:
        """What the sink has, in the order of its batches."""
        return [name for number in sorted(self.written) for name in self.written[number]]

    def left(self) -> set[Name]:
        """What the queue still holds."""
        return {
            (index, at)
            for _, index, first, last in self.machine.state.runs_in_use()
            for at in range(first, last + 1)
        }

    def check(self) -> None:
        """Each message is in one place, and once in the output."""
        rows = self.rows()
        assert len(rows) == len(set(rows)), "a message is in the output twice"
        assert len(self.dead) == len(set(self.dead)), "a message is dead-lettered twice"
        assert not set(rows) & set(self.dead) and not set(rows) & self.poison
        assert not (set(rows) | set(self.dead)) & self.left()
