"""Logs of a sink's run grown with drivers that die, continue as zombies, repeat, drop and are late.

Whatever the order: a batch is in the queue whole and once, and what a driver was told is true.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.machines.queue.world import Queue, block
from warren_machines.queue.commands import AnyCommand, Count, Done, SinkDrop, SinkPublish, SinkStage

PARTITIONS = 2
BATCHES = 6
TTL_MS = 50


def rows_of(batch: int) -> list[tuple[int, int]]:
    """What the query computes for a batch, every time: names of rows."""
    return [(batch, row) for row in range(1 + (batch * 7) % 5)]


class Driver:
    """One start of the query: it continues after the last batch in the checkpoint.

    staged   (partition, attempt) to number of blocks, of the batch under way; None: not staged yet
    expired  time has passed since it was staged
    """

    def __init__(self, world: World, epoch: int) -> None:
        self.world = world
        self.epoch = epoch
        self.batch = world.checkpoint + 1
        self.staged: dict[tuple[int, int], int] | None = None
        self.expired = False
        self.over = False

    def step(self) -> None:
        world, random = self.world, self.world.random
        if self.batch >= BATCHES:
            self.over = True
        elif self.staged is None:
            self._stage_all()
        elif random.random() < 0.15:
            world.send(self._drop(), self._dropped, random.random() < 0.5)
            self.staged = None
        else:
            attempts = tuple((p, a, blocks) for (p, a), blocks in self.staged.items())
            publish = SinkPublish("s", "r", self.epoch, self.batch, attempts)
            if random.random() < 0.3:
                world.late.append((publish, None))  # a first try that a node holds up
            world.send(publish, lambda reply: self._published(reply, publish), False)

    def _stage_all(self) -> None:
        random = self.world.random
        rows = rows_of(self.batch)
        random.shuffle(rows)
        cut = random.randint(0, len(rows))
        self.staged, self.expired = {}, False
        for partition, part in enumerate((rows[:cut], rows[cut:])):
            attempt = random.getrandbits(50)
            seq = 0
            while part and not self.over:
                count = random.randint(1, len(part))
                mine, part = part[:count], part[count:]
                seq += 1
                self._stage(partition, attempt, seq, mine)
            if seq:
                self.staged[partition, attempt] = seq
        if random.random() < 0.3:  # an attempt that loses
            self._stage(0, random.getrandbits(50), 1, rows[:1])

    def _stage(self, partition: int, attempt: int, seq: int, rows: list[tuple[int, int]]) -> None:
        digest = sum(hash_of(row) for row in rows)
        command = SinkStage(
            "s", "r", self.epoch, self.batch, partition, attempt, digest, TTL_MS, seq
        )
        for _ in range(self.world.random.choice((1, 1, 2))):
            self.world.send(command, self._heard, False, rows)
        if self.world.random.random() < 0.2:
            self.world.late.append((command, rows))

    def _drop(self) -> SinkDrop:
        assert self.staged is not None
        return SinkDrop("s", "r", self.epoch, self.batch, tuple(self.staged))

    def _dropped(self, reply: object) -> None:
        self._heard(reply)

    def _heard(self, reply: object) -> None:
        if reply != Done():
            assert reply.reason == "fenced", reply  # type: ignore[attr-defined]
            self.over = True

    def _published(self, reply: object, publish: SinkPublish) -> None:
        batch = publish.batch
        if isinstance(reply, Count):
            assert reply.messages == len(rows_of(batch)), (batch, reply)
            self.world.published.add(publish.attempts)
            self.world.committed(batch)
            self.batch, self.staged = batch + 1, None
            return
        reason = reply.reason  # type: ignore[attr-defined]
        assert reason == "fenced" or (reason == "stage_lost" and self.expired), reply
        self.over |= reason == "fenced"
        self.staged = None


def hash_of(row: tuple[int, int]) -> int:
    return (row[0] * 1_000_003 + row[1] * 7919 + 17) ** 3 % (1 << 62)


class World:
    """A queue, its drivers, the checkpoint they share, and commands that arrive late."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.queue = Queue()
        self.checkpoint = -1
        self.rows: dict[int, list[tuple[int, int]]] = {}
        self.late: list[tuple[AnyCommand, list[tuple[int, int]] | None]] = []
        self.drivers: list[Driver] = []
        self.epoch = 0
        self.highest = 0
        self.published: set[tuple[tuple[int, int, int], ...]] = set()

    def send(
        self,
        command: AnyCommand,
        heard: object,
        late: bool,
        rows: list[tuple[int, int]] | None = None,
    ) -> None:
        if late:
            self.late.append((command, rows))
            return
        heard(self.apply(command, rows))  # type: ignore[operator]

    def apply(self, command: AnyCommand, rows: list[tuple[int, int]] | None) -> object:
        reply = self.queue.do(command, block(len(rows)) if rows else None)
        if rows:
            self.rows[self.queue.index] = list(rows)
        assert isinstance(command, (SinkStage, SinkPublish, SinkDrop))
        fenced = getattr(reply, "reason", "") == "fenced"
        assert fenced == (command.epoch < self.highest), (command, reply, self.highest)
        known = "r" in self.queue.state.runs.get("s", {})
        self.highest = max(self.highest, command.epoch) if known else 0
        self.check()
        return reply

    def committed(self, batch: int) -> None:
        self.checkpoint = max(self.checkpoint, batch)
        assert self.present(batch), f"batch {batch} was answered, and is not there"

    def present(self, batch: int) -> list[tuple[int, int]]:
        return [row for row in self.ready() if row[0] == batch]

    def ready(self) -> list[tuple[int, int]]:
        return [self.rows[index][ordinal] for index, ordinal in self.queue.ready()]

    def check(self) -> None:
        """Every batch whole and once, or not at all, each in one piece."""
        ready = self.ready()
        assert len(ready) == len(set(ready)), "a row twice"
        batches = list(dict.fromkeys(batch for batch, _ in ready))
        assert [batch for batch, _ in ready] == [b for b in batches for _ in rows_of(b)], ready
        assert batches == sorted(batches), batches
        for batch in batches:
            assert sorted(self.present(batch)) == rows_of(batch)

    def start(self) -> Driver:
        self.epoch += self.random.randint(1, 5)
        self.drivers.append(Driver(self, self.epoch))
        return self.drivers[-1]

    def deliver_late(self) -> None:
        command, rows = self.late.pop(self.random.randrange(len(self.late)))
        reply = self.apply(command, rows)
        if isinstance(command, SinkPublish) and isinstance(reply, Count):
            assert reply.messages == len(rows_of(command.batch)), (command, reply)
        if isinstance(command, SinkPublish) and command.attempts in self.published:
            reason = getattr(reply, "reason", "answered")
            assert reason in ("answered", "fenced"), "a repeat is told the count"

    def pass_time(self) -> None:
        for driver in self.drivers:
            driver.expired = True
        self.queue.tick(self.random.choice((1, TTL_MS)))

    def run(self) -> None:
        for _ in range(120):
            alive = [driver for driver in self.drivers if not driver.over]
            chance = self.random.random()
            if not alive or chance < 0.08:
                self.start()  # the others continue: they have not been told
            elif chance < 0.3 and self.late:
                self.deliver_late()
            elif chance < 0.4:
                self.pass_time()
            elif chance < 0.42:
                self.queue.state = self.queue.machine.restore(self.queue.digest())
            else:
                self.random.choice(alive).step()
        last = self.start()
        while not last.over:
            last.step()
        while self.late:
            self.deliver_late()
        assert self.ready() and sorted(self.ready()) == [
            row for batch in range(BATCHES) for row in rows_of(batch)
        ]
        self.queue.tick(10 * TTL_MS)
        assert self.queue.stat().messages_staged == 0


@pytest.mark.parametrize("seed", range(100))
def test_a_batch_is_in_the_queue_whole_and_once_whoever_drives(seed: int) -> None:
    World(seed).run()
