"""A query with rows that make it fail, on the spool and a fake broker: Spark's logs, a sink, kills.

The receiver runs in the driver's process here, step by step, and ends with it. What it answers the
broker with, what it recognises, and what the driver plans is the real code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Any

import pytest

from connector.amqp.fake_broker import Channel, FakeBroker
from connector.amqp.spooling import rows as rows_of
from connector.amqp.spooling import with_id
from connector.amqp.stepping import Disk, SteppingStore
from pyspark_warren.options.options import parse_options
from pyspark_warren.spool import queue_spool
from pyspark_warren.spool.driver import SpoolDriver
from pyspark_warren.spool.files import read_stretch
from pyspark_warren.spool.giving_up import give_up
from pyspark_warren.spool.lane import LaneUse, LaneWriter
from pyspark_warren.spool.lanes import LaneCounts
from pyspark_warren.spool.offset import SpoolOffset, SpoolSlice
from pyspark_warren.spool.receiver_process import SpoolConsumer
from pyspark_warren.spool.search import Decided, DecidedRows
from pyspark_warren.spool.stdio import ReceiverTask
from pyspark_warren.spool.store import SpoolPlace
from warren_wire.amqp091.properties import NONE

NEVER = 1 << 40


class Died(Exception):
    """The driver ends here."""


class ChannelSession:
    """What a `SpoolConsumer` needs of its session, on the fake broker."""

    def __init__(self, world: PoisonSpoolWorld, channel: Channel) -> None:
        self.world, self.channel = world, channel
        self.filled = NothingFilled()

    def ack(self, tag: int, multiple: bool) -> None:
        tags = [each for each in self.channel.unacked if each <= tag] if multiple else [tag]
        for each in tags:
            self.world.step()
            self.world.broker.ack(self.channel, each)

    def nack(self, tag: int, requeue: bool) -> None:
        self.world.step()
        self.world.broker.nack(self.channel, tag, requeue)


class NothingFilled:
    """Nothing is received and not spooled."""

    count = 0


class StepLane:
    """`lanes.Lane` without a process: its receiver works whenever the driver waits for it."""

    world: PoisonSpoolWorld

    def __init__(self, task: ReceiverTask, changed: Any) -> None:
        world, options, reader = self.world, task.options, task.reader
        self.may_ack, self.decided = task.may_ack, DecidedRows(task.decided)
        use = LaneUse(options.vhost, options.queue, seen=task.seen, decided=self.decided)
        token = f"{world.random.getrandbits(64):016x}"
        self.writer = LaneWriter.take_over(world.place, reader, use, token)
        self.base = self.end = self.writer.end
        self.settled = self.writer.settled
        self.reports: list[tuple[int, int]] = []
        self.recognised = self.links = self.pid = 0
        self.warning = self.down_text = ""
        receiver: Any = type("Receiver", (), {"options": options, "reader": reader})()
        self.consumer = SpoolConsumer(receiver, 0)
        self.channel = world.broker.open(options.prefetch)
        world.channel = self.channel
        session: Any = ChannelSession(world, self.channel)
        self.consumer._session = session
        self.consumer._number = self.writer.begin_session()

    @property
    def counts(self) -> LaneCounts:
        return LaneCounts(len(self.world.broker.ready), 1, 0, 0, self.end)

    def settle(self, position: int, decided: Sequence[Decided] = ()) -> None:
        self.decided = DecidedRows(json.loads(json.dumps(decided)))
        self.writer.decide(self.decided)
        self.writer.settle(position)
        self.settled = max(self.settled, position)
        self.receive()
        self.answer()

    def acknowledge(self) -> None:
        self.may_ack = True
        self.answer()

    def answer(self) -> None:
        if self.may_ack:
            self.consumer.acknowledge(self.settled, self.decided)

    def receive(self) -> None:
        """Take what the broker delivers."""
        self.world.broker.deliver()
        taken, self.channel.outbox = self.channel.outbox, []
        if not taken:
            return
        batch = rows_of(
            [message.body for _, message, _ in taken],
            [redelivered for *_, redelivered in taken],
            [message.properties for _, message, _ in taken],
        )
        before = self.end
        positions = self.writer.take(self.consumer._number, batch)
        self.end = self.writer.end
        if self.end > before:
            self.reports.append((self.end, 1))
        self.consumer._unacknowledged.add([tag for tag, *_ in taken], list(positions))
        self.answer()

    def wait(self, until: Callable[[], bool], timeout_s: float) -> bool:
        for _ in range(4):
            if until():
                return True
            self.receive()
        return until()

    def forget_reports(self, position: int) -> None:
        self.reports = [each for each in self.reports if each[0] > position]

    def check(self) -> None:
        """It is well."""

    def down_s(self) -> float:
        return 0.0

    def probe(self) -> int:
        return 0


class PoisonSpoolWorld:
    """A queue, one query with its checkpoint, and a sink that fails on the messages at fault.

    The sink skips a batch that it has, and runs no task of it, as Spark's file sink does.

    dies_in  the next run ends at that many steps from now: of the store, the broker, Spark's logs
    down     the sink takes nothing
    """

    def __init__(self, patch: pytest.MonkeyPatch, seed: int = 0, **options: str) -> None:
        self.random = Random(seed)
        self.broker = FakeBroker(self.random, ordered=True)
        self.disk = Disk(self.random, whole=True)
        self.place = SpoolPlace(SteppingStore(self.disk, self.step), "spool", "spool")
        self.with_ids = True
        self.given = {
            "queue": "q",
            "broker": "amqp",
            "spoolLocation": "/spool",
            "onBatchFailure": "reject",
            "isolatePoison": "true",
            "maxMessagesPerTrigger": "100",
            **options,
        }
        if self.given["onBatchFailure"] == "reject":
            self.given["dropRejected"] = "true"
        self.poison: set[bytes] = set()
        self.published: list[bytes] = []
        self.offsets: list[str] = []
        self.committed = 0
        self.written: dict[int, list[bytes]] = {}
        self.dies_in = NEVER
        self.down = False
        self.runs = self.failures = 0
        self.channel: Channel | None = None
        self.backlog: dict[str, Any] = {}
        lane = type("WorldLane", (StepLane,), {"world": self})
        patch.setattr(queue_spool, "Lane", lane)
        patch.setattr(queue_spool, "open_place", lambda location: self.place)
        patch.setattr(queue_spool, "ready_of", lambda options, doing: len(self.broker.ready))

    def put(self, count: int, bad: Iterable[int] = ()) -> None:
        """Publish messages, some of them at fault."""
        first = len(self.published)
        for number in range(first, first + count):
            body = b"%d" % number
            self.published.append(body)
            self.broker.publish(body, with_id(f"id {number}") if self.with_ids else NONE)
        self.poison |= {b"%d" % (first + at) for at in bad}

    def step(self) -> None:
        """A point at which the driver may end."""
        if self.dies_in <= 0:
            raise Died
        self.dies_in -= 1

    def run(self, dies_in: int = NEVER) -> bool:
        """Run until nothing is there or it fails; return whether nothing was left to read."""
        self.runs += 1
        self.dies_in = dies_in
        options = parse_options(self.given, "read", "stream")
        driver = SpoolDriver(options, lambda: f"spark-{self.runs}")
        try:
            at = driver.initial() if not self.committed else self.stored(self.committed - 1)
            while True:
                if len(self.offsets) == self.committed:
                    end = driver.latest(at, options.max_messages)
                    self.backlog = driver.backlog() or {}
                    if end == at:
                        return True
                    self.step()
                    self.offsets.append(json.dumps(end.to_dict()))
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
            if self.channel is not None and self.channel.open:
                self.broker.close(self.channel)

    def batch(self, driver: SpoolDriver, at: SpoolOffset, end: SpoolOffset) -> bool:
        number = self.committed
        planned = driver.plan(at, end)
        if number not in self.written:
            bodies = [body for part in planned for body in self.task(part)]
            if bodies and (self.down or self.poison & set(bodies)):
                return False
            self.step()
            self.written[number] = bodies
        self.step()
        self.committed += 1
        self.step()
        return True

    def task(self, part: SpoolSlice) -> list[bytes]:
        if part.given_up:
            give_up(self.place, part.reader, part.given_up)
            return []
        found: list[bytes] = []
        for stretch in part.stretches:
            taken = read_stretch(self.place, part.reader, stretch, ["body"])
            found += taken.column("body").to_pylist()
        return found

    def stored(self, batch: int) -> SpoolOffset:
        return SpoolOffset.from_dict(json.loads(self.offsets[batch]))

    def until_done(self, runs_max: int = 300) -> None:
        """Start the query again and again, as what restarts it does."""
        first = self.runs
        while not self.run():
            assert self.runs - first < runs_max, (runs_max, self.offsets[-1])

    # ---------------------------------------------------------------- what came of it

    def rows(self) -> list[bytes]:
        """What the sink has, in the order of its batches."""
        return [body for number in sorted(self.written) for body in self.written[number]]

    def dead(self) -> list[bytes]:
        """What was dead-lettered."""
        return [message.body for message in self.broker.dead]

    def check(self) -> None:
        """The messages at fault are dead-lettered; the others written once, and acknowledged."""
        rows, dead = self.rows(), self.dead()
        assert len(rows) == len(set(rows)) and len(dead) == len(set(dead)), (rows, dead)
        assert set(dead) == self.poison
        assert set(rows) == set(self.published) - self.poison
        assert not self.broker.held(), [message.body for message in self.broker.ready]
