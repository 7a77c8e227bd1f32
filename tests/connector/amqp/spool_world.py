"""One query on a fake broker with its spool, in random lives.

Drivers and receivers are killed or stand still at any step while their successors work, and then
continue. Writes fail and land later, the broker forgets acknowledgements, channels end.

What is asserted: every message is in one committed row; a batch that is planned again has the same
rows; nothing is acknowledged before its batch is committed (ackMode=commit), or before it is in a
file that the next owner counts as valid (ackMode=spool).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from random import Random

from pyspark_warren.errors import FencedError, SpoolError, WarrenSparkError
from pyspark_warren.spool.files import LaneFolder, read_stretch, stretches
from pyspark_warren.spool.lane import LaneUse, LaneWriter
from pyspark_warren.spool.offset import SpoolOffset, slices
from pyspark_warren.spool.store import SpoolPlace
from tests.connector.amqp.fake_broker import Channel, FakeBroker, Message
from tests.connector.amqp.spooling import rows, with_id
from tests.connector.amqp.stepping import Disk, Program, SteppingStore
from warren_wire.amqp091.properties import NONE

STEPS = 700
PREFETCH = 4


@dataclass
class Checkpoint:
    """Spark's logs, and what each batch wrote."""

    offsets: list[SpoolOffset] = field(default_factory=list)
    commits: int = 0
    written: dict[int, list[bytes]] = field(default_factory=dict)
    committed: dict[bytes, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Faults:
    """Bugs of a receiver that the worlds must find; all False: the receiver as it should be."""

    acknowledges_first: bool = False
    takes_after_end: bool = False


SOUND = Faults()


class Receiver:
    """A receiver's process: what `amqp.receiver` does, one step at a time."""

    def __init__(self, world: World, reader: str, seen: int, may_ack: bool) -> None:
        self.world = world
        self.reader = reader
        self.seen = seen
        self.may_ack = may_ack
        self.told = 0
        self.end = 0
        self.eof = False
        self.fenced = False
        self.channels: list[Channel] = []
        self.tags: dict[int, deque[tuple[int, int, Message]]] = {}
        self.program = Program(self.run)

    def run(self, program: Program) -> None:
        world = self.world
        use = LaneUse("/", "q", 3 * PREFETCH, self.seen, world.acked_when_spooled)
        place = world.place(program.pause)
        try:
            token = f"{world.random.getrandbits(64):016x}"
            writer = LaneWriter.take_over(place, self.reader, use, token)
            self.end = writer.end
            sessions: dict[int, int] = {}
            while not self.eof:
                program.pause()
                if self.told > writer.settled:
                    writer.settle(self.told)
                self.renew_channels(writer, sessions)
                for channel in world.random.sample(self.channels, len(self.channels)):
                    self.take(program, writer, channel, sessions[id(channel)])
                self.acknowledge(program, writer)
        except FencedError:
            self.fenced = True
        except SpoolError:
            pass  # a write failed: the driver starts another receiver
        finally:
            for channel in self.channels:
                if channel.open:
                    world.broker.close(channel)

    def renew_channels(self, writer: LaneWriter, sessions: dict[int, int]) -> None:
        """Open channels in place of those that ended."""
        world = self.world
        kept = []
        for channel in self.channels:
            # What had arrived is read before the end is seen, or the end is seen at once.
            if channel.open or (channel.outbox and world.random.random() < 0.7):
                kept.append(channel)
                continue
            if world.faults.takes_after_end and channel.outbox:
                session = sessions.pop(id(channel))
                late = rows(
                    [m.body for _, m, _ in channel.outbox],
                    [r for *_, r in channel.outbox],
                    [m.properties for _, m, _ in channel.outbox],
                )
                world.late_takes.append((session, late))
            else:
                writer.end_session(sessions.pop(id(channel)))
            self.tags.pop(id(channel))
        self.channels = kept
        while len(self.channels) < world.connections:
            channel = world.broker.open(PREFETCH)
            self.channels.append(channel)
            counting = world.kind in ("quorum", "classic")
            sessions[id(channel)] = writer.begin_session(counting, world.kind == "unmarked")
            self.tags[id(channel)] = deque()

    def take(self, program: Program, writer: LaneWriter, channel: Channel, session: int) -> None:
        """Append what a channel has delivered."""
        world = self.world
        count = world.random.randint(0, len(channel.outbox))
        if not count:
            return
        taken, channel.outbox = channel.outbox[:count], channel.outbox[count:]
        if world.faults.acknowledges_first and self.may_ack and world.acked_when_spooled:
            for tag, *_ in taken:
                world.acknowledge(channel, tag, self.reader)
        batch = rows(
            [message.body for _, message, _ in taken],
            [redelivered for *_, redelivered in taken],
            [message.properties for _, message, _ in taken],
        )
        positions = writer.take(session, batch)
        program.pause()
        self.end = writer.end
        for (tag, message, _), position in zip(taken, positions, strict=True):
            self.tags[id(channel)].append((tag, position, message))
        for late in list(world.late_takes):
            world.late_takes.remove(late)
            writer.take(*late)
            writer.end_session(late[0])

    def acknowledge(self, program: Program, writer: LaneWriter) -> None:
        """Acknowledge what may be, in the order of tags; settled rows at once."""
        if not self.may_ack:
            return
        ackable = writer.end if self.world.acked_when_spooled else writer.settled
        for channel in self.channels:
            due = [each for each in self.tags[id(channel)] if each[1] < ackable]
            for each in due:
                program.pause()
                self.world.acknowledge(channel, each[0], self.reader)
                self.tags[id(channel)].remove(each)


class World:
    """The broker, the disk, the checkpoint, the programs.

    kind  of the queue: a quorum queue counts deliveries, and may return messages silently; a
          classic one of RabbitMQ 4 does neither; of another broker's nothing is known; "unmarked"
          is of a broker that does not mark what it delivers again
    """

    def __init__(
        self, seed: int, faults: Faults = SOUND, connections: int = 0, marks: bool = True
    ) -> None:
        self.random = random = Random(seed)
        self.faults = faults
        self.late_takes: list[tuple[int, object]] = []
        self.kind = random.choice(("quorum", "classic", "other"))
        ordered = random.random() < 0.7
        if not marks:
            self.kind = "unmarked"
        self.broker = FakeBroker(random, ordered, self.kind == "quorum", marks)
        self.disk = Disk(random, whole=random.random() < 0.7)
        self.disk.trouble = random.choice((0.0, 0.02))
        self.acked_when_spooled = random.random() < 0.5
        self.with_ids = random.random() < 0.6 or not marks
        # Without message ids several connections may double (docs/how-to/other-brokers.md).
        self.connections = connections or (random.choice((1, 2)) if self.with_ids else 1)
        self.trigger = random.choice(("processing", "processing", "once"))
        self.checkpoint = Checkpoint()
        self.drivers: list[Driver] = []
        self.receivers: list[Receiver] = []
        self.calm = False
        self.minted = 0

    def place(self, pause: Callable[[], None]) -> SpoolPlace:
        return SpoolPlace(SteppingStore(self.disk, pause), "spool", "spool")

    # -------------------------------------------------------------- what is asserted

    def acknowledge(self, channel: Channel, tag: int, reader: str) -> None:
        message = channel.unacked.get(tag)
        if not channel.open or message is None:
            return
        if message.body not in self.checkpoint.committed:
            assert self.acked_when_spooled, f"{message.body!r} acknowledged before its commit"
            valid = self.valid_rows(reader)
            assert message.body in valid, f"{message.body!r} acknowledged, and in no valid file"
        self.broker.ack(channel, tag)

    def valid_rows(self, reader: str) -> list[bytes]:
        """The rows that an owner would find now."""
        place = self.place(lambda: None)
        folder = LaneFolder(place, reader, accept_loss=True)
        bodies: list[bytes] = []
        for file in folder.read().files:
            try:
                found = stretches(place, reader, file.first, file.end)
                for each in found:
                    batch = read_stretch(place, reader, each, ["body"])
                    bodies += batch.column("body").to_pylist()
            except (WarrenSparkError, OSError):
                continue
        return bodies

    def commit(self, batch: int, bodies: list[bytes]) -> None:
        assert len(set(bodies)) == len(bodies), f"batch {batch} has a message twice"
        for body in bodies:
            other = self.checkpoint.committed.setdefault(body, batch)
            assert other == batch, f"{body!r} is in batches {other} and {batch}"

    # -------------------------------------------------------------- what happens

    def publish(self) -> None:
        for _ in range(self.random.randint(1, 4)):
            number = self.broker.published
            body = b"%d" % number
            properties = with_id(f"id {number}") if self.with_ids else NONE
            self.broker.publish(body, properties)

    def disturb(self) -> None:
        """Something fails, or what had failed comes back."""
        self.broker.look(self.random.randint(0, 3))
        chance = self.random.random()
        channels = self.broker.channels
        if chance < 0.35 and channels:
            self.broker.close(self.random.choice(channels))
        elif chance < 0.45:
            self.broker.crash()
        elif chance < 0.55 and channels and self.kind in ("quorum", "other"):
            self.broker.return_silently(self.random.choice(channels))
        elif chance < 0.7 and self.disk.late:
            self.disk.land_late()
        elif chance < 0.8 and self.drivers:
            self.random.choice(self.drivers).die()
        elif self.receivers:
            self.random.choice(self.receivers).program.kill()

    def interleave(self) -> None:
        """Let receivers run while a driver or a task looks at the disk."""
        for each in self.receivers:
            if not each.program.over and self.random.random() < 0.5:
                each.program.step()

    def step(self) -> None:
        """One step of something that is alive; a program is slow or quick at random."""
        self.broker.deliver()
        self.drivers = [driver for driver in self.drivers if not driver.over]
        self.receivers = [each for each in self.receivers if not each.program.over]
        awake = [each.program for each in self.receivers]
        if not self.calm and len(awake) > 1 and self.random.random() < 0.8:
            awake = awake[-1:]  # the older ones stand still most of the time
        for program in awake:
            if self.random.random() < 0.9 and not program.over:
                program.step()
        for driver in self.drivers[-1:] if self.random.random() < 0.8 else self.drivers:
            driver.step()

    def run(self) -> None:
        for _ in range(STEPS):
            chance = self.random.random()
            if chance < 0.03:
                self.publish()
            elif chance < 0.05:
                self.disturb()
            elif chance < 0.06 or not self.drivers:
                self.drivers.append(Driver(self))  # the others may not know it
            self.step()
        self.finish()

    def finish(self) -> None:
        """No more faults: everything is processed."""
        self.calm, self.disk.trouble = True, 0.0
        for driver in self.drivers:
            driver.die()
        for receiver in self.receivers:
            receiver.program.kill()
        while self.disk.late:
            self.disk.land_late()
        for channel in list(self.broker.channels):
            self.broker.close(channel)
        for _ in range(6000):
            if not self.broker.held() and len(self.checkpoint.committed) == self.broker.published:
                break
            if not self.drivers:
                self.drivers.append(Driver(self))
            self.step()
        for driver in self.drivers:
            driver.die()
        for receiver in self.receivers:
            receiver.program.kill()
        assert not self.broker.held(), f"{self.broker.held()} messages remain in the queue"
        numbers = {b"%d" % number for number in range(self.broker.published)}
        missing = numbers - self.checkpoint.committed.keys()
        assert not missing, f"messages that are in no batch: {sorted(missing)}"


class EqualMessages:
    """A receiver with one session that lives; equal messages without ids that others look at.

    What is asserted: each message has a row.

    counts  of a quorum queue: its messages are all looked at, once; those of a classic queue at
            any time
    known   the receiver knows that it is RabbitMQ 4
    """

    def __init__(self, seed: int, counts: bool, known: bool = True) -> None:
        self.random = random = Random(seed)
        self.broker = FakeBroker(random, ordered=random.random() < 0.7, counts=counts)
        self.channel = self.broker.open(PREFETCH)
        disk = Disk(random, whole=True)
        place = SpoolPlace(SteppingStore(disk, lambda: None), "spool", "spool")
        use = LaneUse("/", "q", 3 * PREFETCH, 0, random.random() < 0.5)
        self.writer = LaneWriter.take_over(place, "spark-1", use, "0" * 16)
        self.session = self.writer.begin_session(known)
        self.tags: deque[tuple[int, int]] = deque()
        self.bodies = random.choice((1, 3, 30))

    def step(self) -> None:
        """Publish, look, receive or settle."""
        chance = self.random.random()
        if chance < 0.3:
            made = self.broker.publish(b"%d" % self.random.randrange(self.bodies), NONE)
            made.deliveries = int(self.broker.counts)
        elif chance < 0.4 and not self.broker.counts:
            self.broker.look(self.random.randint(1, 3))
        elif chance < 0.8:
            self.receive()
        else:
            self.settle(self.random.randint(self.writer.settled, self.writer.end))

    def receive(self) -> None:
        """Take what the channel has delivered."""
        self.broker.deliver()
        taken, self.channel.outbox = self.channel.outbox, []
        batch = rows(
            [message.body for _, message, _ in taken],
            [redelivered for *_, redelivered in taken],
            [message.properties for _, message, _ in taken],
        )
        positions = self.writer.take(self.session, batch) if taken else ()
        self.tags += zip((tag for tag, *_ in taken), positions, strict=True)

    def settle(self, position: int) -> None:
        """Settle, and acknowledge what is settled."""
        self.writer.settle(position)
        while self.tags and self.tags[0][1] < position:
            self.broker.ack(self.channel, self.tags.popleft()[0])

    def run(self) -> None:
        """Take steps, then receive all."""
        for _ in range(300):
            self.step()
        while self.broker.held():
            self.receive()
            self.settle(self.writer.end)
        assert self.writer.end == self.broker.published, (self.writer.end, self.broker.published)


class Driver:
    """One run of the query, as Spark's micro-batch execution runs it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.over = False
        self.receiver: Receiver | None = None
        self.initial: SpoolOffset | None = None
        self.steps = self.life()

    def step(self) -> None:
        if self.over:
            return
        try:
            next(self.steps)
        except StopIteration:
            self.die()
        except FencedError:
            self.die()

    def die(self) -> None:
        self.over = True
        if self.receiver is not None:
            self.receiver.eof = True

    def start_offset(self) -> SpoolOffset:
        """The offset of a query without a checkpoint."""
        if self.initial is None:
            self.world.minted += 1
            name = f"spark-{self.world.minted}"
            self.initial = SpoolOffset("/", name, registered=False)
        return self.initial

    def life(self) -> Iterator[None]:
        log = self.world.checkpoint
        batch = len(log.offsets) - 1
        once = self.world.trigger == "once" and not self.world.calm
        if batch < 0:
            start = self.start_offset()
            yield
        elif log.commits > batch:
            start = log.offsets[batch]
        else:
            start = log.offsets[batch - 1] if batch else self.start_offset()
            yield
            yield from self.batch(batch, start, log.offsets[batch])
            start = log.offsets[batch]
        batch += 1
        idle = 0
        while True:
            end = yield from self.latest(start, once)
            yield
            if end == start:
                idle += 1
                if once and idle > 3:
                    return
                continue
            if len(log.offsets) != batch:
                return  # "concurrent update to the log"
            log.offsets.append(end)
            yield
            yield from self.batch(batch, start, end)
            start = end
            batch += 1
            if once:
                return

    def latest(self, start: SpoolOffset, once: bool) -> Generator[None, None, SpoolOffset]:
        """Settle what is committed; wait a little for rows."""
        if not start.registered and not once:
            return start.at({"q": start.of("q", False)})
        position = start.of("q", False).row
        receiver = self.running(start.reader, position, may_ack=start.registered)
        if start.registered:
            receiver.told = max(receiver.told, position)
        for _ in range(self.world.random.randint(1, 20)):
            yield
            if receiver.end > position and self.world.random.random() < 0.5:
                break
        if receiver.fenced:
            raise FencedError("another receiver has the lane")
        if receiver.end <= position:
            return start
        most = self.world.random.randint(1, 6)
        return start.at({"q": start.of("q", False).at(min(receiver.end, position + most))})

    def running(self, reader: str, seen: int, may_ack: bool) -> Receiver:
        found = self.receiver
        if found is None or found.program.over or found.reader != reader:
            if found is not None and found.fenced:
                raise FencedError("another receiver has the lane")
            found = self.receiver = Receiver(self.world, reader, seen, may_ack)
            self.world.receivers.append(found)
        found.may_ack = found.may_ack or may_ack
        return found

    def batch(self, batch: int, start: SpoolOffset, end: SpoolOffset) -> Iterator[None]:
        world, log = self.world, self.world.checkpoint
        place = world.place(world.interleave)
        low = start.of("q", False).row if start.reader == end.reader else 0
        high = end.of("q", False).row
        bodies: list[bytes] = []
        if low < high:
            try:
                found = stretches(place, end.reader, low, high)
            except WarrenSparkError:
                assert log.commits > batch, f"batch {batch} cannot be read again"
                return  # another driver committed it, and its files were settled
            for part in slices("q", end.reader, found, world.random.choice((0, 2))):
                for each in part.stretches:
                    taken = read_stretch(place, end.reader, each, ["body"])
                    bodies += taken.column("body").to_pylist()
            assert len(bodies) == high - low, (len(bodies), low, end)
        yield
        before = log.written.setdefault(batch, bodies)
        assert before == bodies, f"batch {batch} was read twice, with other rows"
        yield
        if log.commits != batch:
            self.over = True
            return
        log.commits += 1
        world.commit(batch, bodies)
        yield
