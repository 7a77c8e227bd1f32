"""Clients of a run that read by claims, and that publish by stages; one thread each."""

from __future__ import annotations

import random
import threading
from typing import Any

from nemesis import body
from nemesis.clients import World
from warren.claims import Claim, ClaimReader, fetch_claim
from warren.connection import Connection
from warren.errors import Unavailable
from warren.stages import SinkDriver, StagedPart, StageWriter, draw_epoch, publish_batch
from warren_wire.block.block import Block
from warren_wire.block.block_encoding import encode

CLAIM_MESSAGES = 400
CLAIM_BYTES = 1 << 20
IDLE_S = 0.2
REQUEST_S = 15.0
FETCHES = (1, 1, 2, 3)
BATCH_MESSAGES_MAX = 120
PARTITIONS = 2
LOSING_ONE_IN = 3
AGAIN_ONE_IN = 3


class Working(threading.Thread):
    """A client that does one step after the other; each may be repeated until it works."""

    def __init__(self, world: World, name: str, queue: str) -> None:
        super().__init__(name=name, daemon=True)
        self.world = world
        self.queue = queue
        self.chance = random.Random(f"{world.seed} {name}")
        self.failure: BaseException | None = None
        self.idle = False
        self._wake = threading.Event()

    def run(self) -> None:
        """Until the world closes, or something is wrong."""
        try:
            while not self.world.closing:
                try:
                    self.step()
                except Unavailable:
                    self._wake.wait(IDLE_S)
        except Exception as error:  # whatever it is, it ends this client and is reported
            self.failure = error
            what = f"{self.name}: {type(error).__name__}: {error}"
            self.world.record("problem", what=what)

    def step(self) -> None:
        """One round; Unavailable: the next one begins where this one failed."""
        raise NotImplementedError

    def connect(self) -> Connection:
        """To any node."""
        first = self.chance.randrange(len(self.world.nodes))
        return Connection(self.world.nodes.address(first, REQUEST_S), name=self.name)

    def rest(self) -> None:
        """Nothing to do for the moment."""
        self.idle = True
        self._wake.wait(IDLE_S)


class Claimer(Working):
    """Opens a claim, fetches it (sometimes again, by another connection), settles it.

    A settle whose answer was lost may have been applied: it is repeated before the next claim is
    opened, as Spark's driver does.

    _next  the claim to open, or to settle; 0: it has not registered yet
    """

    def __init__(self, world: World, name: str, queue: str) -> None:
        super().__init__(world, name, queue)
        self._epoch: int | None = None
        self._next = 0
        self._settling = False

    def step(self) -> None:
        """See `Working`."""
        with self.connect() as connection:
            reader = ClaimReader(connection, self.queue, self.name, self._epoch)
            if self._epoch is None or self.chance.random() < 0.1:  # a driver that starts again
                self._epoch = None  # without an answer it may be applied: then the older is fenced
                registration = reader.register()
                self._epoch = registration.epoch
                known = (self._next - 1, self._next)
                if self._next and registration.settled not in known:
                    self.world.record(
                        "problem",
                        what=f"{self.name}: {registration}, claim {self._next} is the next one",
                    )
                self._settling = self._settling and registration.settled < self._next
                self._next = registration.settled + 1
            if self._settling:
                self._settle(reader)
            for _ in range(self.chance.randrange(1, 8)):
                self._round(reader)

    def _round(self, reader: ClaimReader) -> None:
        number = self._next
        claim = reader.open(number, max_messages=CLAIM_MESSAGES, max_bytes=CLAIM_BYTES)
        if not claim.messages:
            self.rest()
            return
        self.idle = False
        for attempt in range(self.chance.choice(FETCHES)):
            if attempt:
                with self.connect() as other:
                    self._fetch(other, claim)
            else:
                self._fetch(reader.connection, claim)
        self._settling = True
        self._settle(reader)

    def _settle(self, reader: ClaimReader) -> None:
        reader.settle(self._next)
        self.world.record("settled", q=self.queue, reader=self.name, number=self._next)
        self._next += 1
        self._settling = False

    def _fetch(self, connection: Connection, claim: Claim) -> None:
        middle = self.chance.randrange(claim.messages + 1)
        ids: list[Any] = []
        for first, last in ((0, middle), (middle, claim.messages)):
            for piece in fetch_claim(connection, self.queue, self.name, claim.number, first, last):
                block = Block.decode(piece.data)
                for i in range(len(block)):
                    found = body.parse(bytes(block.body(i)))
                    if found is None:
                        self.world.record("stray", q=self.queue, what=repr(block.body(i)[:80]))
                    else:
                        ids.append(found)
        self.world.record("claimed", q=self.queue, reader=self.name, number=claim.number, ids=ids)
        self.world.delivered += len(ids)


class Stager(Working):
    """Stages a batch in partitions, with attempts that lose, publishes it, often twice."""

    def __init__(self, world: World, name: str, queue: str) -> None:
        super().__init__(world, name, queue)
        self._batch = 0
        self._driver: SinkDriver | None = None
        self._parts: list[StagedPart] = []
        self._ids: list[tuple[str, int]] = []
        self._attempt = 0

    def step(self) -> None:
        """See `Working`."""
        if self.world.stopping and not self._parts:
            self.rest()
            return
        self.idle = False
        with self.connect() as connection:
            if self._driver is None:
                self._driver = SinkDriver(
                    self.name, "run", draw_epoch(connection, timeout_s=REQUEST_S)
                )
            if not self._parts:
                self._stage_all(connection)
            self._publish(connection)
        self._wake.wait(IDLE_S)

    def _stage_all(self, connection: Connection) -> None:
        self._ids = []
        parts = []
        for partition in range(PARTITIONS):
            if self.chance.randrange(LOSING_ONE_IN) == 0:
                self._stage(connection, partition, "loses", record=False)
            parts.append(self._stage(connection, partition, "wins", record=True))
        self.world.record("staged", q=self.queue, sink=self.name, batch=self._batch, ids=self._ids)
        self._parts = parts

    def _stage(self, connection: Connection, partition: int, what: str, record: bool) -> StagedPart:
        self._attempt += 1
        stream = f"{self.name}.{what}.{self._batch}.{partition}.{self._attempt}"
        count = self.chance.randrange(1, BATCH_MESSAGES_MAX)
        assert self._driver is not None
        with StageWriter(
            connection, self._driver, batch=self._batch, partition=partition, timeout_s=REQUEST_S
        ) as writer:
            for first in range(0, count, 40):
                numbers = range(first, min(first + 40, count))
                bodies = [body.make(stream, n, self.chance.randrange(300)) for n in numbers]
                writer.write(encode(bodies, [b"\0\0"] * len(bodies), (b"", self.queue.encode())))
            part = writer.finish()
        if record:
            self._ids += [(stream, n) for n in range(count)]
        return part

    def _publish(self, connection: Connection) -> None:
        assert self._driver is not None
        first = publish_batch(
            connection, self._driver, self._batch, self._parts, timeout_s=REQUEST_S
        )
        self.world.record("batch", q=self.queue, sink=self.name, batch=self._batch)
        if self.chance.randrange(AGAIN_ONE_IN) == 0:
            again = publish_batch(
                connection, self._driver, self._batch, self._parts, timeout_s=REQUEST_S
            )
            if first != len(self._ids) or again != first:
                what = (
                    f"{self.name}: batch {self._batch} of {len(self._ids)} messages: {first} "
                    f"published, then {again}"
                )
                self.world.record("problem", what=what)
        self._parts = []
        self._batch += 1
