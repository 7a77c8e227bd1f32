"""A source of several queues in random lives: every message in one committed batch, once.

Drivers die at any step and continue beside their successor, requests are lost before or after they
are carried out, queues join and leave the pattern, are declared and deleted, other queries take
the checkpoint over with the option `queue` or `queues` instead of a pattern.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from spark_world.fake import FakeBroker, FakeClient

from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.errors import CheckpointError, ClaimLostError, FencedError
from pyspark_warren.options.options import parse_options
from pyspark_warren.surroundings import Surroundings
from warren import errors

SEEDS = range(40)
STEPS = 250
PATTERNS = ("^[a-f]$", "^[a-d]$", "^[b-f]$")


class Died(Exception):
    """The driver's process ends here."""


class World:
    """Queues, one query with its checkpoint, and the rows of each committed batch."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.broker = FakeBroker()
        self.now_ms = self.minted = self.published = 0
        self.calm = False
        self.sent: set[bytes] = set()
        self.deleted: set[bytes] = set()
        self.offsets: list[dict[str, Any]] = []
        self.rows: list[list[bytes]] = []
        self.seen: dict[int, list[bytes]] = {}
        self.runs: list[Iterator[None]] = []
        self.options = {
            "maxMessagesPerTrigger": self.random.choice(("1", "4", "50")),
            "queueSharing": self.random.choice(("fair", "backlog")),
            "minMessagesPerTrigger": self.random.choice(("0", "1")),
        }
        self.limit = self.random.choice((10, 10, None))
        for name in "abc":
            self.broker.declare(name)

    def call(self, name: str, *args: Any) -> Any:
        """A request, which may be lost on its way, or its answer."""
        chance = 1.0 if self.calm else self.random.random()
        if chance < 0.02:
            raise errors.Unavailable("lost on the way")
        reply = getattr(self.broker, name)(*args)
        if chance < 0.04:
            raise errors.Unavailable("the answer was lost")
        return reply

    def sleep(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)

    def mint(self) -> str:
        self.minted += 1
        return f"minted {self.minted}"

    def driver(self) -> ClaimDriver:
        pattern = PATTERNS[0] if self.calm else self.random.choice(PATTERNS)
        given = {"queuePattern": pattern}
        if not self.calm and self.random.random() < 0.2:
            named = [name for name in sorted(self.broker.queues) if re.search(pattern, name)]
            given = {"queues": ",".join(named)} if named else given
        options = parse_options({**self.options, **given}, "read")
        return ClaimDriver(
            FakeClient(self.call), options, Surroundings(lambda: self.now_ms, self.sleep, self.mint)
        )

    def publish(self) -> None:
        name = self.random.choice(sorted(self.broker.queues))
        count = self.random.randint(1, 8)
        bodies = [b"%d" % i for i in range(self.published, self.published + count)]
        self.published += count
        self.sent.update(bodies)
        self.broker.publish(name, bodies, [self.random.choice((0, 4, 9)) for _ in bodies])

    def change_queues(self) -> None:
        """A queue is declared, or an empty one that no batch holds is deleted."""
        name = self.random.choice("abcdef")
        state = self.broker.queues.get(name)
        if state is None:
            # Of a queue that was deleted and declared again the checkpoint's driver is told.
            known = {key for stored in self.offsets[-2:] for key in stored["queues"]}
            known |= {key for stored in self.offsets[-2:] for key in stored.get("leaving", ())}
            if name not in known:
                self.broker.declare(name)
        elif not state.ready and not any(each.claims for each in state.readers.values()):
            if len(self.broker.queues) > 1:
                del self.broker.queues[name]

    def run(self) -> None:
        for _ in range(STEPS):
            chance = self.random.random()
            if not self.runs or chance < 0.04:
                self.runs.append(self.life())
            elif chance < 0.2:
                self.publish()
            elif chance < 0.25:
                self.change_queues()
            else:
                self.step(self.random.choice(self.runs))
        self.calm, self.limit = True, 10
        for _ in range(30):
            self.runs = [self.life()]
            for _ in range(60):
                if self.runs:
                    self.step(self.runs[0])
        self.audit()

    def step(self, run: Iterator[None]) -> None:
        """On to the next point where the driver may die, or stand still."""
        if not self.calm and self.random.random() < 0.05:
            self.runs.remove(run)
            return
        try:
            next(run)
        except (StopIteration, Died, FencedError, errors.Unavailable):
            self.runs.remove(run)
        except (ClaimLostError, CheckpointError, errors.PeerError):
            # A driver that was overtaken, or named a queue that is gone, or none of the checkpoint.
            if self.calm:
                raise
            self.runs.remove(run)

    def life(self) -> Iterator[None]:
        """As Spark's micro-batch execution: batch after batch; each `yield` is a place to die."""
        driver = self.driver()
        batch = len(self.offsets) - 1
        if batch < 0:
            start = driver.initial()
        elif len(self.rows) > batch:
            start = Offset.from_dict(self.offsets[batch])
        else:
            before = self.offsets[batch - 1] if batch else None
            start = Offset.from_dict(before) if before else driver.initial()
            yield
            end = Offset.from_dict(self.offsets[batch])
            yield from self.batch(driver, batch, start, end)
            start = end
        batch += 1
        while True:
            end = driver.latest(start, self.limit)
            yield
            if end is start:
                continue
            if len(self.offsets) != batch:
                raise Died("concurrent update to the log")
            self.offsets.append(end.to_dict())
            yield
            if self.random.random() < 0.7:
                with contextlib.suppress(errors.Unavailable):
                    driver.settle(start)
            yield from self.batch(driver, batch, start, end)
            start = end
            batch += 1

    def batch(self, driver: ClaimDriver, batch: int, start: Offset, end: Offset) -> Iterator[None]:
        rows: list[bytes] = []
        for part in driver.plan(start, end):
            yield
            state = self.broker.queues.get(part.queue)
            reader = state.readers.get(part.reader) if state is not None else None
            if state is None or reader is None or part.number not in reader.claims:
                raise Died("a task found no claim: another driver has settled it")
            claim = reader.claims[part.number]
            rows += [
                bytes(state.blocks[each.index].body(each.ordinal))
                for each in claim[part.first : part.last]
            ]
        assert self.seen.setdefault(batch, rows) == rows, "a batch read again has other rows"
        yield
        if len(self.rows) != batch:
            raise Died("concurrent update to the log")
        self.rows.append(rows)
        yield

    def audit(self) -> None:
        committed = [row for rows in self.rows for row in rows]
        assert len(committed) == len(set(committed)), "read twice"
        assert set(committed) == self.sent, "messages that are nowhere"
        for name in self.broker.queues:
            state = self.broker.state(name)
            assert (state["ready"], state["claims"]) == (0, {}), name


@pytest.mark.parametrize("seed", SEEDS)
def test_every_message_is_in_one_committed_batch(seed: int) -> None:
    World(seed).run()
