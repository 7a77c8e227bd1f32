"""A broker in a dictionary: what `claims.client.WarrenBroker` says, done the dumb way.

`FakeBroker` is the state, used in one process by the unit tests; `serve` and `FakeClient` put it
behind a socket, so that it outlives the Spark drivers that the crash tests kill.
"""

from __future__ import annotations

import re
import socket
import socketserver
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark_warren.claims.plan import ViewPiece
from spark_world.fake_message import Message
from spark_world.fake_reader import FakeReader, take, told
from spark_world.fake_writer import FakeWriter, by_queue
from spark_world.pickles import receive, send
from warren import errors
from warren.admin import Queue, Reader
from warren.claims import (
    Claim,
    ClaimSlice,
    FetchedBlock,
    ReaderStep,
    Registration,
    StepTaken,
)
from warren.stages import SettledClaim, SinkDriver, StagedPart, StageKey
from warren.views import ViewedBlock
from warren_wire.amqp10.viewed import ViewHead
from warren_wire.block.block import AREAS, Block, concat, encode

FETCH_MESSAGES = 700
"""Messages in one piece: few, so that a slice comes in several."""


@dataclass
class ReaderState:
    """A claim reader."""

    epoch: int = 0
    settled: int = 0
    claims: dict[int, list[Message]] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    starts: int = 0


@dataclass
class QueueState:
    """A queue: ready messages in delivery order, claims, stages, published batches."""

    name: str
    ready: list[Message] = field(default_factory=list)
    blocks: dict[int, Block] = field(default_factory=dict)
    readers: dict[str, ReaderState] = field(default_factory=dict)
    stages: dict[tuple[str, str, int, int, int], list[bytes]] = field(default_factory=dict)
    published: dict[tuple[str, str, int], tuple[list[str], int]] = field(default_factory=dict)
    epochs: dict[tuple[str, str], int] = field(default_factory=dict)
    acknowledged: int = 0
    floor: int = 0
    epoch: int = 0
    next_index: int = 1
    arguments: dict[str, Any] = field(default_factory=dict)
    dead: list[Message] = field(default_factory=list)

    def enqueue(self, data: bytes) -> None:
        """A block's messages join the ready ones; priorities first, then arrival."""
        block = Block.decode(data)
        index, self.next_index = self.next_index, self.next_index + 1
        self.blocks[index] = block
        self.ready += [Message(index, i, block.priority(i)) for i in range(block.count)]
        self.ready.sort(key=lambda message: -message.priority)

    def give_back(self, messages: list[Message], failed: bool = False) -> None:
        """To the head, in their order; beyond the delivery limit to the dead ones."""
        for message in messages:
            message.acquired_count += 1
            message.delivery_count += failed
        limit = self.arguments.get("x-delivery-limit", 20)
        self.dead += [message for message in messages if message.delivery_count > limit]
        messages = [message for message in messages if message.delivery_count <= limit]
        self.ready = messages + self.ready
        self.ready.sort(key=lambda message: -message.priority)

    def size_bytes(self, messages: list[Message]) -> int:
        """Bodies and properties."""
        return sum(self.blocks[m.index].size_bytes(m.ordinal, m.ordinal + 1) for m in messages)


def quorum_queue(name: str, **counts: Any) -> Queue:
    """A queue of one member, as a client is shown it."""
    return Queue(name, "/", "quorum", True, False, False, "node1", ("node1",), **counts)


def _lost(reader: str, number: int) -> errors.ClaimLost:
    return errors.ClaimLost(f"claim {number} of reader {reader!r} is not open", status=410)


class FakeBroker:
    """Queues by name. Routing: the default exchange, or exchange "fan" to every queue bound."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.queues: dict[str, QueueState] = {}
        self.bindings: dict[tuple[str, str], list[str]] = {}
        self.calls: list[tuple[Any, ...]] = []
        self.epoch = 0

    # -------------------------------------------------------------- for tests

    def declare(self, name: str) -> None:
        """Make a queue."""
        self.queues[name] = QueueState(name)

    def bind(self, exchange: str, routing_key: str, queue: str) -> None:
        """Lead an exchange's routing key to a queue."""
        self.bindings.setdefault((exchange, routing_key), []).append(queue)

    def publish(self, queue: str, bodies: list[bytes], priorities: list[int] | int = 4) -> None:
        """Messages by the back door."""
        self.queues[queue].enqueue(
            encode(bodies, [b"\x10\x00\x02"] * len(bodies), (b"", queue.encode()), priorities)
        )

    def bodies(self, queue: str) -> list[bytes]:
        """What is ready, in delivery order."""
        state = self.queues[queue]
        return [bytes(state.blocks[m.index].body(m.ordinal)) for m in state.ready]

    def state(self, queue: str) -> dict[str, Any]:
        """Counts for assertions."""
        state = self.queues[queue]
        return {
            "ready": len(state.ready),
            "acknowledged": state.acknowledged,
            "claims": {
                name: {n: len(c) for n, c in reader.claims.items()}
                for name, reader in state.readers.items()
                if reader.claims
            },
            "settled": {name: reader.settled for name, reader in state.readers.items()},
            "staged": sum(len(blocks) for blocks in state.stages.values()),
            "published": sorted(state.published),
            "readers": sorted(state.readers),
        }

    def release_claims(self, queue: str) -> None:
        """What an operator may do: all claims go back, their numbers are lost."""
        for reader in self.queues[queue].readers.values():
            for number in sorted(reader.claims):
                self.queues[queue].give_back(reader.claims.pop(number))
                reader.lost.add(number)

    def calls_of(self, kind: str) -> list[tuple[Any, ...]]:
        """Calls recorded, of one kind."""
        return [call for call in self.calls if call[0] == kind]

    # -------------------------------------------------------------- port.Broker, with plain values

    def _queue(self, name: str) -> QueueState:
        if name not in self.queues:
            raise errors.NotFound(f"no queue '{name}' in vhost '/'", status=404)
        return self.queues[name]

    def _reader(self, queue: str, reader: str, epoch: int | None) -> ReaderState:
        state = self._queue(queue).readers.get(reader)
        if state is None or epoch is None or epoch > state.epoch:
            raise errors.PeerError(f"reader {reader!r} is not registered", status=409)
        if epoch < state.epoch:
            raise errors.Fenced(f"epoch {epoch} is older than {state.epoch}", status=409)
        return state

    def queue(self, name: str) -> Queue:
        """Counts."""
        state = self._queue(name)
        readers = tuple(
            Reader(n, r.epoch, r.settled, len(r.claims), 0, starts=r.starts)
            for n, r in sorted(state.readers.items())
        )
        claimed = sum(len(c) for r in state.readers.values() for c in r.claims.values())
        return quorum_queue(
            name,
            messages_ready=len(state.ready),
            messages_claimed=claimed,
            bytes_ready=state.size_bytes(state.ready),
            readers=readers,
            arguments=state.arguments,
        )

    def names(self, pattern: str) -> list[str]:
        """Names in which a pattern is found."""
        return [name for name in sorted(self.queues) if re.search(pattern, name)]

    def register(self, queue: str, reader: str, go_on_after: int = 0) -> Registration:
        """Get a new epoch."""
        found = self._queue(queue)
        state = found.readers.setdefault(reader, ReaderState(found.epoch, found.floor))
        state.epoch = found.epoch = max(found.epoch, state.epoch) + 1
        if not any(number <= go_on_after for number in state.claims):
            state.settled = max(state.settled, go_on_after)
        self.calls.append(("register", reader, state.epoch))
        state.starts += 1
        return Registration(state.epoch, state.settled, state.starts)

    def open(
        self,
        queue: str,
        reader: str,
        epoch: int | None,
        number: int,
        max_messages: int,
        max_bytes: int,
        keep_empty: bool = False,
        ahead: bool = False,
    ) -> Claim:
        """Open a claim."""
        state, found = self._reader(queue, reader, epoch), self._queue(queue)
        self.calls.append(("open", reader, number))
        if number not in state.claims:
            if number != state.settled + 1 + len(state.claims) or number in state.lost:
                raise _lost(reader, number)
            if len(state.claims) > ahead:
                raise _lost(reader, number)
            if ahead and len(found.ready) < max_messages:
                return Claim(number, 0, 0, False)
            taken: list[Message] = []
            while (
                found.ready
                and len(taken) < max_messages
                and (not taken or found.size_bytes([*taken, found.ready[0]]) <= max_bytes)
            ):
                taken.append(found.ready.pop(0))
            if not taken and not keep_empty:
                return Claim(number, 0, 0, False)
            state.claims[number] = taken
        claim = state.claims[number]
        return Claim(number, len(claim), found.size_bytes(claim), True)

    def settle(self, queue: str, reader: str, epoch: int | None, number: int) -> int:
        """Acknowledge claims up to `number`."""
        state = self._reader(queue, reader, epoch)
        self.calls.append(("settle", reader, number))
        if number > state.settled + len(state.claims):
            raise _lost(reader, number)
        if number > state.settled and any(
            each not in state.claims for each in range(state.settled + 1, number + 1)
        ):
            raise _lost(reader, number)
        done = 0
        for each in [n for n in state.claims if n <= number]:
            done += len(state.claims.pop(each))
        state.settled = max(state.settled, number)
        self._queue(queue).acknowledged += done
        return done

    def withdraw(self, queue: str, reader: str, epoch: int | None, number: int) -> int:
        """Empty a claim, which stays open."""
        state = self._reader(queue, reader, epoch)
        self.calls.append(("withdraw", reader, number))
        back = state.claims[number]
        state.claims[number] = []
        self._queue(queue).give_back(back)
        return len(back)

    def renew(self, queue: str, reader: str, epoch: int | None) -> None:
        """Renew the claims."""
        self._reader(queue, reader, epoch)
        self.calls.append(("renew", reader))

    def release(
        self, queue: str, reader: str, epoch: int | None, number: int, failed: bool = False
    ) -> int:
        """Give back; 0: all, and the reader ends."""
        state = self._reader(queue, reader, epoch)
        back = 0
        for each in [n for n in sorted(state.claims) if number in (0, n)]:
            messages = state.claims.pop(each)
            state.lost.add(each)
            back += len(messages)
            self._queue(queue).give_back(messages, failed)
        if number == 0:
            used = max(state.settled, *state.lost, 0)
            self._queue(queue).floor = max(self._queue(queue).floor, used + 1)
            del self._queue(queue).readers[reader]
        return back

    def fetch(
        self, queue: str, reader: str, number: int, first: int, last: int, areas: int
    ) -> list[tuple[tuple[Any, ...], bytes]]:
        """Runs and block of each piece."""
        state = self._queue(queue).readers.get(reader)
        if state is None or number not in state.claims:
            raise _lost(reader, number)
        self.calls.append(("fetch", reader, number, first, last, areas))
        return self._pieces(self._queue(queue), state.claims[number][first:last], areas)

    def browse(
        self, queue: str, most: int, areas: int, first: int = 0, last: int = 1 << 62
    ) -> list[tuple[tuple[Any, ...], bytes]]:
        """Ready ones of blocks with first <= index < last, untouched."""
        found = [m for m in self._queue(queue).ready if first <= m.index < last]
        return self._pieces(self._queue(queue), found[:most], areas)

    def ready_indexes(self, queue: str) -> list[int]:
        """Numbers of the blocks with ready messages, ascending."""
        return sorted({m.index for m in self._queue(queue).ready})

    def _pieces(
        self, queue: QueueState, messages: list[Message], areas: int
    ) -> list[tuple[tuple[Any, ...], bytes]]:
        pieces = []
        for at in range(0, len(messages), FETCH_MESSAGES):
            some = messages[at : at + FETCH_MESSAGES]
            runs = tuple(
                (m.index, m.ordinal, m.ordinal, m.delivery_count, m.acquired_count) for m in some
            )
            parts = [(queue.blocks[m.index], m.ordinal, m.ordinal + 1) for m in some]
            pieces.append((runs, concat(parts, areas=areas)))
        return pieces

    def _routed(self, exchange: str, data: bytes) -> dict[str, bytes]:
        """Queue to the block of what it gets."""
        block = Block.decode(data)
        parts: dict[str, list[tuple[Block, int, int]]] = {}
        for i in range(block.count):
            name, key = (part.decode() for part in block.route(i))
            assert name == exchange, (name, exchange)
            targets = self.bindings.get((exchange, key), []) if exchange else [key]
            if not targets or any(target not in self.queues for target in targets):
                raise errors.Unroutable(
                    f"exchange {exchange!r} has no queue for routing key {key!r}"
                )
            for target in targets:
                parts.setdefault(target, []).append((block, i, i + 1))
        return {name: concat(some) for name, some in parts.items()}

    def draw_epoch(self) -> int:
        """A number above all before."""
        self.epoch += 1
        return self.epoch

    def _fence(self, queue: QueueState, driver: SinkDriver) -> None:
        run = driver.sink, driver.run
        if driver.epoch < queue.epochs.get(run, 0):
            raise errors.Fenced(f"{run} has epoch {queue.epochs[run]}, not {driver.epoch}")
        queue.epochs[run] = driver.epoch

    def stage_block(
        self,
        exchange: str,
        driver: SinkDriver,
        place: tuple[int, int, int],
        data: bytes,
    ) -> list[str]:
        """Put a block into a stage, in every queue that it routes to.

        place  batch, partition, attempt
        """
        routed = self._routed(exchange, data)
        for name, block in routed.items():
            queue = self.queues[name]
            self._fence(queue, driver)
            key = (driver.sink, driver.run, *place)
            queue.stages.setdefault(key, []).append(block)
        self.calls.append(("stage", driver.sink, *place))
        return sorted(routed)

    def publish_batch(
        self,
        driver: SinkDriver,
        batch: int,
        attempts: dict[str, list[tuple[int, int, int]]],
        settles: list[tuple[str, str, int, int]],
    ) -> int:
        """Make visible, once; then settle."""
        self.calls.append(("publish", driver.sink, batch, attempts))
        done = 0
        for name, each in attempts.items():
            queue, named = self._queue(name), (driver.sink, driver.run, batch)
            self._fence(queue, driver)
            blocks: list[bytes] = []
            for partition, attempt, count in each:
                found = queue.stages.get((*named, partition, attempt), [])
                if len(found) != count and named not in queue.published:
                    raise errors.StageLost(f"{named}: {len(found)} blocks staged, not {count}")
                blocks += found
            bodies = sorted(
                bytes(b.body(i)).hex() for b in map(Block.decode, blocks) for i in range(b.count)
            )
            if named not in queue.published:
                for block in blocks:
                    queue.enqueue(block)
                queue.published[named] = bodies, len(bodies)
            elif blocks and bodies != queue.published[named][0]:
                raise errors.BatchConflict(f"{named} was published with other rows")
            queue.stages = {
                key: v for key, v in queue.stages.items() if key[:2] != named[:2] or key[2] > batch
            }
            done += queue.published[named][1]
        for claim in settles:
            self.settle(*claim)
        return done

    def last_batches(self, queue: str, run: str) -> dict[str, int]:
        """Of each sink with a run of that name."""
        known = sorted(self._queue(queue).published)
        return {sink: batch for sink, of, batch in known if of == run}

    def drop_batch(
        self, driver: SinkDriver, batch: int, attempts: dict[str, list[tuple[int, int, int]]]
    ) -> None:
        """Forget stages."""
        self.calls.append(("drop", driver.sink, batch))
        for name, each in attempts.items():
            self._fence(self._queue(name), driver)
            for partition, attempt, _ in each:
                self._queue(name).stages.pop(
                    (driver.sink, driver.run, batch, partition, attempt), None
                )

    def publish_block(self, exchange: str, data: bytes) -> None:
        """Visible at once."""
        for name, block in self._routed(exchange, data).items():
            self.queues[name].enqueue(block)


# ------------------------------------------------------------------ port.Broker in front of it


class FakeClient:
    """`port.Broker`: each call reaches the state through `call`."""

    def __init__(self, call: Any) -> None:
        self._call = call

    @classmethod
    def local(cls, broker: FakeBroker) -> FakeClient:
        """In one process."""
        return cls(lambda name, *args: getattr(broker, name)(*args))

    @classmethod
    def remote(cls, port: int) -> FakeClient:
        """Over a socket: one connection per call."""

        def call(name: str, *args: Any) -> Any:
            with socket.create_connection(("127.0.0.1", port), timeout=20) as stream:
                send(stream, (name, args))
                worked, value = receive(stream)
            if not worked:
                raise value
            return value

        return cls(call)

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self._call(name, *args)

    def queue(self, name: str) -> Queue:
        """Counts."""
        return self._call("queue", name)

    def queues(self, pattern: str) -> list[Queue]:
        """Queues by pattern."""
        return [self._call("queue", name) for name in self._call("names", pattern)]

    def queues_named(self, names: Sequence[str]) -> list[Queue | errors.WarrenError]:
        """Several queues."""
        return [told(self.queue, name) for name in names]

    def take_steps(self, steps: Sequence[ReaderStep]) -> list[StepTaken | errors.WarrenError]:
        """Each reader's step, one after the other."""
        return [told(take, self.reader, step) for step in steps]

    def reader(self, queue: str, reader: str) -> FakeReader:
        """A driver's side."""
        return FakeReader(self._call, queue, reader)

    def fetch(
        self,
        queue: str,
        reader: str,
        number: int,
        first: int,
        last: int,
        areas: int,
        read_by: Any = None,
    ) -> Iterator[FetchedBlock]:
        """A slice."""
        for runs, data in self._call("fetch", queue, reader, number, first, last, areas):
            yield FetchedBlock(runs, memoryview(data))

    def fetch_slices(
        self, slices: Sequence[ClaimSlice], areas: int
    ) -> Iterator[tuple[int, FetchedBlock]]:
        """Slices, one after the other."""
        for at, part in enumerate(slices):
            where = (part.queue, part.reader, part.number, part.first, part.last)
            for piece in self.fetch(*where, areas, part.read_by):
                yield at, piece

    def browse(self, queue: str, max_messages: int, areas: int = AREAS) -> Iterator[FetchedBlock]:
        """Yield ready messages."""
        for runs, data in self._call("browse", queue, max_messages, areas):
            yield FetchedBlock(runs, memoryview(data))

    def view_edges(self, queue: str, states: Sequence[str], pieces: int) -> list[int]:
        """Two blocks a piece: the fake broker knows ready messages only."""
        indexes = self._call("ready_indexes", queue)
        return [*indexes[::2], indexes[-1] + 1] if indexes else []

    def view(
        self, queue: str, states: Sequence[str], piece: ViewPiece, times: bool, areas: int | None
    ) -> Iterator[ViewedBlock]:
        """Ready messages."""
        most = piece.max_messages or 1 << 30
        for runs, data in self._call("browse", queue, most, areas or 0, piece.first, piece.last):
            rows = tuple((0, -1, *run, 0, 0, 0) for run in runs)
            yield ViewedBlock(ViewHead((), rows, ()), memoryview(data))

    def draw_epoch(self, timeout_s: float) -> int:
        """Draw an epoch for a driver."""
        return self._call("draw_epoch")

    def stage(
        self, exchange: str, driver: SinkDriver, key: StageKey, timeout_s: float
    ) -> FakeWriter:
        """Open a stage."""
        return FakeWriter(
            key.partition,
            key.attempt,
            lambda data: self._call("stage_block", exchange, driver, tuple(key), data),
        )

    def publish_batch(
        self,
        driver: SinkDriver,
        batch: int,
        parts: Iterable[StagedPart],
        timeout_s: float,
        settles: Sequence[SettledClaim] = (),
    ) -> int:
        """Publish the batch; the claims that it settles are one call with it."""
        return self._call(
            "publish_batch",
            driver,
            batch,
            by_queue(parts),
            [(claim.queue, claim.reader, claim.epoch, claim.number) for claim in settles],
        )

    def last_batches(self, queue: str, run: str) -> dict[str, int]:
        """Of each sink with a run of that name."""
        return self._call("last_batches", queue, run)

    def drop_batch(self, driver: SinkDriver, batch: int, parts: Iterable[StagedPart]) -> None:
        """Drop the staged parts."""
        self._call("drop_batch", driver, batch, by_queue(parts))

    def publisher(self, exchange: str, timeout_s: float) -> FakeWriter:
        """Open a publisher of blocks that are visible at once."""
        return FakeWriter(0, 0, lambda data: self._call("publish_block", exchange, data) or [])


# ------------------------------------------------------------------ over a socket


class _Handler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        name, args = receive(self.request)
        broker = self.server.broker  # type: ignore[attr-defined]
        try:
            with broker.lock:
                answer = (True, getattr(broker, name)(*args))
        except errors.WarrenError as wrong:
            answer = (False, wrong)
        send(self.request, answer)


class FakeServer(socketserver.ThreadingTCPServer):
    """The fake behind a port on loopback, in threads of the test's process."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.broker = FakeBroker()
        self.port = self.server_address[1]
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def __exit__(self, *trace: Any) -> None:
        self.shutdown()
        self.server_close()
