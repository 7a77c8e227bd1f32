"""The source's driver on the queue machine itself, in random lives.

Drivers die at any step, continue beside their successor, fall silent until their claim expires;
each has other options; operators release, purge and declare again; other readers crowd ours out;
requests arrive late or their answers are lost; the queue is restored from its snapshot; a query
with readerId begins again with a new checkpoint.

What is asserted is what docs/semantics.md promises of the source, message by message.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from spark_world.fake import quorum_queue
from spark_world.fake_reader import TwoAtOnce, take, told

from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.errors import (
    CheckpointBehindError,
    CheckpointError,
    ClaimLostError,
    FencedError,
    WarrenSparkError,
)
from pyspark_warren.options.options import parse_options
from pyspark_warren.surroundings import Surroundings
from tests.machines.queue.world import Queue as Machine
from warren import errors
from warren.admin import Queue, Reader
from warren.claims import Claim, ReaderStep, Registration
from warren_machines.metadata.records import numbered_above
from warren_machines.queue import commands as c
from warren_machines.queue.claims import claim as claims
from warren_machines.queue.machine import QueueMachine
from warren_wire.queue_values.give_up_command import GiveUpClaim

SEEDS = range(60)
STEPS = 160
TTL_MS = 10_000
IDLE_MS = 80_000
EXPIRES_MS = 60_000
Name = tuple[int, int, int]
"""A message: which life of the queue, entry, ordinal."""


class Died(Exception):
    """The driver's process ends here."""


class MachineReader(TwoAtOnce):
    """`port.Reader` on the machine; its requests may be lost, late or unanswered."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.epoch = 0
        self.queue = ""

    def register(self, *, go_on_after: int = 0, expires_ms: int = 0) -> Registration:
        self.world.calls += 1
        call = f"call {self.world.calls}"
        reply = self.world.ask(c.RegisterReader(self.name, go_on_after, call, IDLE_MS, expires_ms))
        self.epoch = reply.epoch
        return Registration(reply.epoch, reply.settled)

    def open(self, number: int, *, max_messages: int, max_bytes: int, **more: Any) -> Claim:
        reply = self.world.ask(
            c.OpenClaim(
                self.name,
                number,
                self.epoch,
                max_messages,
                max_bytes,
                more.get("ttl_ms", 0),
                more.get("keep_empty", False),
                more.get("ahead", False),
            )
        )
        if isinstance(reply, c.EmptyClaim):
            return Claim(reply.number, 0, 0, True)
        return Claim(reply.number, reply.messages, reply.size_bytes, reply.messages > 0)

    def settle(self, number: int) -> int:
        return self.world.ask(c.SettleClaims(self.name, number, self.epoch)).messages

    def settle_and_open(self, number: int, **limits: Any) -> tuple[int, Claim | None]:
        """Both requests go off at once: the second one may arrive first, and is refused then."""
        if self.world.calm or self.world.random.random() < 0.7:
            return super().settle_and_open(number, **limits)
        with contextlib.suppress(errors.PeerError):
            self.open(number, **limits)
        return self.settle(number - 1), None

    def withdraw(self, number: int) -> int:
        return self.world.ask(GiveUpClaim(self.name, number, self.epoch, "withdraw", 1)).messages

    def renew(self) -> None:
        self.world.ask(c.RenewClaims(self.name, self.epoch))

    def release(self, number: int = 0, *, failed: bool = False) -> int:
        return self.world.ask(c.ReleaseClaim(self.name, number, self.epoch, failed)).messages


@dataclass
class Checkpoint:
    """Spark's logs, and the sink: rows of each batch as they were written, by whomever."""

    offsets: list[Offset] = field(default_factory=list)
    commits: int = 0
    written: dict[int, set[tuple[Name, ...]]] = field(default_factory=dict)
    rows: dict[int, tuple[Name, ...]] = field(default_factory=dict)


class World:
    """A queue's lives, one query with its checkpoint, and what became of each message."""

    def __init__(self, seed: int, caplog: pytest.LogCaptureFixture) -> None:
        self.random = random = Random(seed)
        self.caplog = caplog
        self.machine = Machine()
        self.life = 0
        self.calls = self.minted = self.others = 0
        self.calm = False
        self.late: list[c.AnyCommand] = []
        self.sent: set[Name] = set()
        self.gone: set[Name] = set()
        self.told: set[Name] = set()
        self.lost: set[Name] = set()
        self.again: set[Name] = set()
        self.checkpoints = [Checkpoint()]
        self.runs: list[Run] = []
        self.trigger = random.choice(("processing", "processing", "once", "available"))
        self.expires = f"{random.choice((0, TTL_MS))}ms", f"{random.choice((0, EXPIRES_MS))}ms"
        self.reader_id = "mine" if random.random() < 0.4 else ""

    @property
    def checkpoint(self) -> Checkpoint:
        """The one that drivers begin with."""
        return self.checkpoints[-1]

    def committed(self) -> set[Name]:
        """The rows of all batches."""
        return {name for each in self.checkpoints for rows in each.rows.values() for name in rows}

    def options(self) -> dict[str, str]:
        """The options of a run: most may differ from those of the run before."""
        given = {
            "queue": "q",
            "maxMessagesPerTrigger": str(self.random.choice((1, 3, 10))),
            "claimTtl": self.expires[0],
            "readerExpires": self.expires[1],
            "prefetchClaims": "0",
        }
        if not self.calm and self.random.random() < 0.2:
            given["claimTtl"] = f"{self.random.choice((0, TTL_MS))}ms"
        return given | ({"readerId": self.reader_id} if self.reader_id else {})

    # ---------------------------------------------------------------- port.Broker

    def queue(self, name: str) -> Queue:
        stat = self.machine.stat()
        return quorum_queue(
            name,
            messages_ready=stat.messages_ready,
            messages_claimed=stat.messages_claimed,
            readers=tuple(
                Reader(of.name, of.epoch, of.settled, of.open_claims, of.heard_ms)
                for of in stat.readers
            ),
        )

    def reader(self, queue: str, reader: str) -> MachineReader:
        return MachineReader(self, reader)

    def take_steps(self, steps: Sequence[ReaderStep]) -> list[Any]:
        return [told(take, self.reader, step) for step in steps]

    def ask(self, command: c.AnyCommand) -> Any:
        chance = 1.0 if self.calm else self.random.random()
        if chance < 0.03:
            self.late.append(command)
            raise errors.Unavailable("the answer did not come in time")
        if chance < 0.1:
            self.late.append(command)  # an earlier try of the same request, held up somewhere
        reply = self.apply(command)
        if 0.1 < chance < 0.13:
            raise errors.Unavailable("the answer was lost")
        if isinstance(reply, c.Refused):
            kinds = {
                "claim_lost": errors.ClaimLost,
                "unknown_reader": errors.ClaimLost,
                "fenced": errors.Fenced,
            }
            raise kinds[reply.reason](reply.detail)
        return reply

    # ---------------------------------------------------------------- the queue

    def names(self, runs: Any) -> list[Name]:
        return [
            (self.life, index, i) for index, first, last, *_ in runs for i in range(first, last + 1)
        ]

    def claimed(self) -> dict[tuple[str, int], list[Name]]:
        return {
            (reader.name, number): self.names(claim.runs)
            for reader in self.machine.state.readers.values()
            for number, claim in reader.claims.items()
        }

    def named(self) -> set[tuple[str, int]]:
        """The claims in Spark's offset log."""
        offsets = [each for checkpoint in self.checkpoints for each in checkpoint.offsets]
        stands = [at for each in offsets for at in each.queues.values()]
        return {(at.reader, claim.number) for at in stands for claim in at.claims}

    def apply(self, command: c.AnyCommand | None) -> Any:
        """One entry; whatever left a claim was committed, or is in the queue again."""
        before = self.claimed()
        if self.random.random() < 0.05:
            self.machine.state = self.machine.machine.restore(self.machine.digest())
        reply = None
        if command is None:
            self.machine.tick(0)
        else:
            reply = self.machine.do(command)
        after = self.claimed()
        ready = {(self.life, *name) for name in self.machine.ready()}
        committed = self.committed()
        for key, names in before.items():
            if key in after and isinstance(command, GiveUpClaim) and names and not after[key]:
                assert ready.issuperset(names), "what is withdrawn is in the queue again"
                assert key not in self.named(), "a claim of a batch was withdrawn"
            elif key in after:
                assert after[key] == names, "a claim's content never changes"
            elif ready.issuperset(names):
                self.lost.update(names)
            else:
                assert isinstance(command, c.SettleClaims), command
                assert committed.issuperset(names), f"{key} was settled and is in no batch"
        return reply

    # ---------------------------------------------------------------- what happens

    def publish(self) -> None:
        count = self.random.randint(1, 6)
        index = self.machine.put(count, priorities=self.random.choice((0, 4, 9)))
        self.sent.update((self.life, index, i) for i in range(count))

    def pass_time(self) -> None:
        self.machine.now += self.random.choice((5, 3_000, TTL_MS, IDLE_MS))
        self.apply(None)

    def operate(self) -> None:
        """An operator, or another reader."""
        chance = self.random.random()
        readers = sorted(self.machine.state.readers.values(), key=lambda each: each.name)
        if chance < 0.3 and readers:
            reader = self.random.choice(readers)
            number = self.random.choice((0, reader.settled + 1, reader.settled + 1))
            self.apply(c.ReleaseClaim(reader.name, number, -1, False))
        elif chance < 0.4:
            self.gone.update((self.life, *name) for name in self.machine.ready())
            self.apply(c.Purge())
        elif chance < 0.5:
            self.declare_anew()
        else:
            self.others += 1
            self.apply(c.RegisterReader(f"other {self.others}", 0, "", IDLE_MS))

    def declare_anew(self) -> None:
        """The queue is deleted with all it holds and declared again; drivers may run on."""
        self.late.clear()  # requests are for the queue that they were sent to, not for its name
        self.checkpoint.written.pop(self.checkpoint.commits, None)
        self.gone |= {(self.life, *name) for name in self.machine.ready()}
        self.gone |= {name for names in self.claimed().values() for name in names}
        now = self.machine.now
        self.life += 1
        self.machine = Machine()
        self.machine.machine = QueueMachine(self.machine.machine.config, numbered_above(self.life))
        self.machine.state = self.machine.machine.init()
        self.machine.now = now + 1

    def begin_again(self) -> None:
        """The query is stopped and begins with a new checkpoint, under the name of its reader.

        It continues after the last settled claim (claims.md), so what is still in the queue
        is in two batches if it was committed.
        """
        for run in self.runs:
            run.over = True
        self.again |= {name for names in self.claimed().values() for name in names}
        self.again |= {(self.life, *name) for name in self.machine.ready()}
        self.checkpoints.append(Checkpoint())

    def deliver_late(self) -> None:
        self.apply(self.late.pop(self.random.randrange(len(self.late))))

    def hears_of_loss(self) -> None:
        """The user is told: in an error, or by what he asked for in the log."""
        self.told |= self.lost | self.gone

    def run(self) -> None:
        for _ in range(STEPS):
            chance = self.random.random()
            alive = [run for run in self.runs if not run.over]
            if not alive or chance < 0.03:
                self.runs.append(Run(self))  # the others continue: they have not been told
            elif chance < 0.2:
                self.publish()
            elif chance < 0.3:
                self.pass_time()
            elif chance < 0.34:
                self.operate()
            elif chance < 0.345 and self.reader_id:
                self.begin_again()
            elif chance < 0.4 and self.late:
                self.deliver_late()
            else:
                self.random.choice(alive).step()
        self.calm = True
        self.finish()
        while self.late:
            self.deliver_late()
        self.audit()

    def finish(self) -> None:
        """Let drivers run, one after the other, until nothing is left."""
        for _ in range(40):
            last = Run(self)
            for _ in range(400):
                if not last.over and not last.idle:
                    last.step()
            left = self.machine.stat()  # availableNow does not read what it has given back itself
            if last.idle and not left.messages_claimed and not left.messages_ready:
                break

    def audit(self) -> None:
        """Nothing is left in the queue, and each message is where it should be."""
        stat = self.machine.stat()
        assert (stat.messages_ready, stat.messages_claimed) == (0, 0), stat
        assert self.committed() | self.gone >= self.sent, "messages that are nowhere"


class Run:
    """A driver from its start to its end, as Spark's micro-batch execution runs one."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.log = world.checkpoint
        self.over = self.idle = False
        on_loss = world.random.choice(("fail", "continue")) if not world.calm else "continue"
        given = {**world.options(), "onClaimLost": on_loss}
        # A first batch of a name is that name's: the checkpoint of it.
        self.foreign = not world.calm and bool(self.log.offsets) and world.random.random() < 0.03
        if self.foreign:
            given["readerId"] = "another"
        self.options = parse_options(given, "read")
        broker: Any = world  # what a driver asks of one
        self.driver = ClaimDriver(
            broker,
            self.options,
            Surroundings(
                lambda: world.machine.now, lambda seconds: None, self.mint, lambda work: None
            ),
        )
        self.steps = self.life()

    def mint(self) -> str:
        self.world.minted += 1
        return f"minted {self.world.minted}"

    def step(self) -> None:
        """On to the next point where it may die, or stand still."""
        world = self.world
        if not world.calm and world.random.random() < 0.04:
            self.over = True
            return
        try:
            next(self.steps)
        except StopIteration:
            self.over = True
        except (Died, FencedError, errors.Fenced, errors.Unavailable):
            self.over = True
        except (CheckpointBehindError, ClaimLostError, errors.ClaimLost):
            self.over = True
            world.hears_of_loss()
        except CheckpointError as wrong:
            self.over = True
            assert self.foreign and "the option readerId says" in str(wrong), wrong
        except WarrenSparkError as wrong:
            raise AssertionError("an error of another kind") from wrong

    def life(self) -> Iterator[None]:
        """populateStartOffsets, then batch after batch; each `yield` is a place to die."""
        log = self.log
        batch = len(log.offsets) - 1
        if batch < 0:
            start = self.driver.initial()
            yield
        elif log.commits > batch:
            start = log.offsets[batch]
        else:
            start = log.offsets[batch - 1] if batch else self.driver.initial()
            yield
            yield from self.batch(batch, start, log.offsets[batch])
            start = log.offsets[batch]
        once = self.world.trigger == "once" and not self.world.calm
        if self.world.trigger == "available":
            self.driver.prepare_available_now()
        batch += 1
        while True:
            self.idle = False
            end = self.latest(start, None if once else self.options.max_messages)
            yield
            if end == start:
                self.idle = True
                if self.world.trigger != "processing":
                    return
                yield
                continue
            if len(log.offsets) != batch:
                raise Died("concurrent update to the log")
            log.offsets.append(end)
            yield
            if batch and self.world.random.random() < 0.7:
                with contextlib.suppress(errors.Unavailable, errors.ClaimLost):
                    self.driver.settle(log.offsets[batch - 1])  # as `WarrenStreamReader.commit`
            yield from self.batch(batch, start, end)
            start = end
            batch += 1
            if once:
                return

    def latest(self, start: Offset, limit: int | None) -> Offset:
        with _Listening(self.world, self.options.on_claim_lost):
            return self.driver.latest(start, limit)

    def batch(self, batch: int, start: Offset, end: Offset) -> Iterator[None]:
        world, log = self.world, self.log
        with _Listening(world, self.options.on_claim_lost):
            slices = self.driver.plan(start, end)
        rows: list[Name] = []
        for part in slices:
            yield
            found = claims.claim_slice(
                world.machine.state, part.reader, part.number, part.first, part.last
            )
            if found is None:
                raise errors.ClaimLost("a task found no claim")
            rows += world.names(found)
            assert len(world.names(found)) == part.last - part.first, "other rows than were planned"
        if self.driver.attached and world.random.random() < 0.3:
            self.driver.renew()
        yield
        written = log.written.setdefault(batch, set())
        written.add(tuple(rows))
        assert len(written - {()}) <= 1, f"batch {batch} was read twice, with other rows"
        yield
        if log.commits != batch:
            raise Died("concurrent update to the log")
        twice = world.committed() & set(rows)
        assert twice <= world.told | world.again, f"batch {batch} has rows of another one: {twice}"
        log.rows[batch] = tuple(rows)
        log.commits += 1
        yield


class _Listening:
    """With onClaimLost=continue the driver logs the claim after which it continues."""

    def __init__(self, world: World, on_loss: str) -> None:
        self.world = world
        self.on_loss = on_loss

    def __enter__(self) -> None:
        self.world.caplog.clear()

    def __exit__(self, *wrong: object) -> None:
        said = [each.getMessage() for each in self.world.caplog.records]
        if any("(onClaimLost=continue)" in each for each in said):
            assert self.on_loss == "continue"
            self.world.hears_of_loss()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_message_is_lost_or_doubled_without_a_word(
    seed: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(claims, "READERS_MAX", 3)
    caplog.set_level("WARNING", logger="pyspark_warren")
    World(seed, caplog).run()
