"""Transfers, dispositions and flows, played by both kernels and by Proton's binding alone.

`python -m tests.broker.clients10.link_twins FIRST SECONDS` plays seeds from FIRST on until one
differs; with 0 SECONDS it plays that seed alone.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any, Final
from unittest import mock

from tests.broker.clients10.stream_fuzz import ANSWERS, CONSUMER, damaged
from tests.broker.clients10.test_connection import output
from tests.broker.clients10.test_endings import attach, frame, opened_by_hand, receiver
from warren_broker.clients10 import held_deliveries, publishing_link
from warren_broker.clients10.connection import Connection10
from warren_broker.clients10.link_requests import (
    CreditDrained,
    GrantCredit,
    PublishMessages,
    PublishOutcomes,
    RejectedBy,
)
from warren_machines.queue.commands import Delivery as Run
from warren_wire import errors
from warren_wire.amqp10 import deliveries
from warren_wire.amqp10.proton import ffi, lib
from warren_wire.block.block import Block, encode
from warren_wire.kernel import load
from warren_wire.queue_values.command_base import QueueCommand

FIRST_ID: Final = 0xFFFF_FFF0
"""Of the client's transfers: it wraps after sixteen."""
NOTHING: Final = b"\x40"
STATES: Final = (
    b"\x00\x53\x24\x45",
    b"\x00\x53\x24\x45",
    b"\x00\x53\x24\xc0\x01\x00",
    b"\x00\x53\x26\x45",
    b"\x00\x53\x25\x45",
    b"\x00\x53\x25\xc0\x0a\x01\x00\x53\x1d\xc0\x04\x01\xa3\x01x",
    b"\x00\x53\x27\xc0\x03\x02\x41\x42",
    b"\x00\x53\x23\xc0\x03\x02\x43\x43",
    NOTHING,
)
SIZES: Final = (0, 1, 40, 40, 40, 255, 256, 3_000, 70_000)
PROPERTIES: Final = (b"\x00\x00", b"\x00\x00", b"\x10\x00\x02", b"\x10\x00\x01", b"\x00\x80\x02id")
Step = Callable[["World"], None]


class Alone:
    """No calls of the kernel: every message is read and written for itself, outcomes are events."""

    def skim(self, *given: object) -> int:
        """Handle none."""
        return 0

    def read(self, link: int, head: bytes, bytes_max: int, *given: object) -> object:
        """Read one message, which has no head in common with another."""
        pointer = ffi.cast("pn_link_t *", link)
        for delivery, data, settled in deliveries.whole_messages(pointer, bytes_max):
            return deliveries.address_of(delivery), data, settled
        return None

    def write(self, *given: object) -> tuple[int, int]:
        """Write none."""
        return 0, 0


@contextmanager
def played_by(twin: str) -> Iterator[None]:
    """Have what is in it done by a kernel, or by "proton" alone."""
    runs = load("compiled" if twin == "compiled" else "interpreted").link_runs
    calls = Alone() if twin == "proton" else runs.EngineCalls(ffi, lib)
    with ExitStack() as held:
        held.enter_context(mock.patch.object(deliveries, "CALLS", calls))
        held.enter_context(mock.patch.object(held_deliveries, "Unsettled", runs.Unsettled))
        held.enter_context(mock.patch.object(publishing_link, "Gathered", runs.Gathered))
        yield


def uint(number: int) -> bytes:
    return b"\x70" + struct.pack(">I", number & 0xFFFF_FFFF)


def listed(code: int, *fields: bytes, payload: bytes = b"", channel: int = 0) -> bytes:
    """A frame of a performative."""
    data = b"".join(fields)
    head = b"\xd0" + struct.pack(">II", len(data) + 4, len(fields))
    return frame(b"\x00\x53" + bytes([code]) + head + data + payload, channel)


def message(rng: Random, number: int) -> bytes:
    """A message; most are like one another up to the body."""
    body = rng.randbytes(rng.choice(SIZES))
    head, kind = b"\x00\x53\x70\xc0\x02\x01\x41", rng.randrange(12)
    if kind == 0:
        head = b""
    elif kind == 1:
        head += b"\x00\x53\x73\xc0\x0a\x01\x80" + struct.pack(">Q", number)
    elif kind == 2:
        return head + b"\x00\x53\x77\x54\x07"
    elif kind == 3:
        return (
            rng.randbytes(rng.randrange(30)) if rng.random() < 0.1 else head + b"\x00\x53\x75\xa0\0"
        )
    wide = len(body) > 255 or kind == 4
    data = b"\xb0" + struct.pack(">I", len(body)) if wide else bytes((0xA0, len(body)))
    return head + b"\x00\x53\x75" + data + body + (b"\x00\x53\x75\xa0\x01+" if kind == 5 else b"")


class World:
    """A connection with a publisher's and a consumer's link, and what was seen of it."""

    def __init__(self, begin: int = FIRST_ID) -> None:
        self.connection = opened_by_hand()
        self.seen: list[object] = []
        self.pending: list[PublishMessages] = []
        session = listed(0x11, NOTHING, uint(begin), uint(2_000), uint(1 << 30))
        self.take(session + attach(0, b"s") + receiver(1, b"r"))

    def take(self, data: bytes) -> None:
        """Receive bytes."""
        self.connection.receive(data)
        self.look()

    def look(self) -> None:
        """Note the requests, and answer what needs no decision."""
        for _ in range(4):
            for request in self.connection.take_requests():
                self.seen.append(shown(request))
                if isinstance(request, PublishMessages):
                    self.pending.append(request)
                elif isinstance(request, GrantCredit):
                    if request.drain:
                        said = CreditDrained(request.delivered)
                        self.connection.answer(request.token, said)
                elif not isinstance(request, QueueCommand):
                    answer = ANSWERS.get(type(request)) or errors.NotFound("no")
                    self.connection.answer(request.token, answer)
        made, bounds = self.connection, self.connection.bounds
        self.seen.append((made.failure, made.in_flight_bytes, made.unfinished_bytes))
        self.seen.append((bounds.unsettled, bounds.undelivered_bytes))

    def send(self) -> None:
        """Take the output."""
        self.seen.append(output(self.connection))
        self.look()

    def tell(self, rng: Random) -> None:
        """Answer published messages: in parts, some of them twice."""
        while self.pending and rng.random() < 0.8:
            request = self.pending.pop(rng.randrange(len(self.pending)))
            every = list(range(request.table.count))
            rng.shuffle(every)
            cut = rng.randrange(len(every) + 1) if rng.random() < 0.3 else len(every)
            first = PublishOutcomes(accepted=sorted(every[:cut]))
            rest: dict[str, Any] = {"accepted": every[:1], "released": sorted(every[cut:])}
            if rng.random() < 0.3:
                rejected = [(at, RejectedBy("q", False)) for at in every[cut:]]
                rest = {"rejected": rejected, "released": every[:2]}
            elif rng.random() < 0.05:
                rest = {"refused": [(at, errors.NotFound("gone")) for at in every[cut:]]}
            self.connection.answer(request.token, first)
            self.connection.answer(request.token, PublishOutcomes(**rest, last=True))
        self.look()


def shown(request: Any) -> object:
    """A request as what can be compared."""
    if isinstance(request, PublishMessages):
        table = request.table
        rows = (bytes(table.rows), bytes(table.properties), bytes(table.bodies))
        return (
            "publish",
            request.token,
            rows,
            table.routes.entries,
            request.settled,
            request.flags,
        )
    return repr(request)


def begun() -> Connection10:
    """A connection with the two links, which are accepted."""
    return World(begin=0).connection


def transfer(number: int, payload: bytes) -> bytes:
    """A whole message on the first link."""
    tag = b"\xa0\x04" + struct.pack(">I", number)
    return listed(0x14, b"\x43", uint(number), tag, b"\x43", b"\x42", payload=payload)


def credit(seen: int, more: int) -> bytes:
    """A flow of the second link."""
    session = (uint(seen), uint(1 << 20), NOTHING, uint(1 << 20))
    return listed(0x13, *session, b"\x52\x01", uint(seen), uint(more))


def accepted(number: int) -> bytes:
    """A disposition that settles a delivery."""
    return listed(0x15, b"\x41", uint(number), NOTHING, b"\x41", STATES[0])


class Script:
    """The steps of a client and of its queues, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.next_id = FIRST_ID
        self.delivered = 0
        self.steps: list[Step] = []
        kinds = (
            (6, self.transfers),
            (4, self.deliver),
            (5, self.dispositions),
            (3, self.flow),
            (3, self.answers),
        )
        weights = [weight for weight, _ in kinds]
        for _ in range(self.rng.randrange(10, 60)):
            (kind,) = self.rng.choices([kind for _, kind in kinds], weights)
            kind()
            if self.rng.random() < 0.7:
                self.steps.append(World.send)
            if self.rng.random() < 0.03:
                self.rare()

    def receive(self, data: bytes) -> None:
        """Have bytes received, in pieces."""
        if self.rng.random() < 0.02:
            data = damaged(self.rng, data[:400]) + data[400:]
        cuts = sorted(
            self.rng.randrange(len(data) + 1) for _ in range(self.rng.choice((0, 0, 1, 3)))
        )
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            self.steps.append(partial(World.take, data=data[begin:end]))

    def transfers(self) -> None:
        """Messages, of which some are in several frames, settled, aborted or damaged."""
        rng, made = self.rng, b""
        for _ in range(rng.choice((1, 2, 9, 20))):
            data = message(rng, self.next_id)
            settled = b"\x41" if rng.random() < 0.1 else b"\x42"
            named = [uint(self.next_id), b"\xa0\x04" + struct.pack(">I", self.next_id), b"\x43"]
            self.next_id = self.next_id + 1 & 0xFFFF_FFFF
            if rng.random() < 0.1:
                cut = rng.randrange(len(data) + 1)
                made += listed(0x14, b"\x43", *named, settled, b"\x41", payload=data[:cut])
                if rng.random() < 0.2:
                    self.receive(made)
                    made = b""
                aborted = b"\x41" if rng.random() < 0.2 else b"\x42"
                fields = (NOTHING,) * 3 + (settled, b"\x42", b"\x40", b"\x40", b"\x40", aborted)
                made += listed(0x14, b"\x43", *fields, payload=data[cut:])
            else:
                more = (b"\x42", b"\x40", b"\x40", b"\x42", b"\x42", b"\x41")  # batchable
                made += listed(
                    0x14, b"\x43", *named, settled, *more[: rng.choice((0, 1, 6))], payload=data
                )
        self.receive(made)

    def deliver(self) -> None:
        """Messages of the queue, runs of which are alike."""
        rng = self.rng
        count = rng.choice((1, 2, 10, 60))
        same = rng.choice(PROPERTIES)
        mixed = rng.random() < 0.4
        properties = [rng.choice(PROPERTIES) if mixed else same for _ in range(count)]
        bodies = [rng.randbytes(rng.choice(SIZES[: 6 if count > 10 else 9])) for _ in range(count)]
        routes = [(b"", b"q"), (b"x", b"k")][: rng.choice((1, 2))]
        block = Block.decode(encode(bodies, properties, (b"", b"q"), 4, None))
        if len(routes) > 1:
            block = Block.decode(
                encode(bodies, properties, (b"x", b"k" * rng.randrange(3)), 4, None)
            )
        first = self.delivered + (rng.random() < 0.05)
        begin = rng.randrange(count)
        self.delivered = first + count - begin
        again = rng.random() < 0.2
        notes = ((first, (("x-opt-a", b"\x01"),)),) if rng.random() < 0.05 else ()
        run = Run(first, 1, begin, count - 1, acquired_count=int(again), annotations=notes)
        self.steps.append(
            lambda world: (world.connection.deliver(CONSUMER, run, block), world.look())[1]
        )

    def dispositions(self) -> None:
        """Outcomes of single deliveries and of ranges; sometimes of the client's own transfers."""
        rng, made = self.rng, b""
        for _ in range(rng.choice((1, 1, 5, 40))):
            own = rng.random() < 0.05
            if own:
                first = self.next_id - rng.randrange(1, 30)
            else:
                first = max(0, self.delivered - rng.randrange(1, 80) - rng.randrange(3))
            last = NOTHING if rng.random() < 0.5 else uint(first + rng.choice((0, 3, 50)))
            settled = b"\x41" if rng.random() < 0.7 else b"\x42"
            role = b"\x42" if own else b"\x41"
            more = (b"\x41",) if rng.random() < 0.2 else ()
            made += listed(0x15, role, uint(first), last, settled, rng.choice(STATES), *more)
        self.receive(made)

    def flow(self) -> None:
        """Credit, windows, drains and echoes."""
        rng = self.rng
        seen = max(0, self.delivered - rng.choice((0, 0, 5, 30)))
        window = rng.choice((3, 50, 2_000, 1 << 20))
        session = (uint(seen), uint(window), uint(self.next_id), uint(1 << 30))
        if rng.random() < 0.1:
            self.receive(listed(0x13, *session))
            return
        said = (uint(rng.choice((seen, self.delivered, 0))), uint(rng.choice((0, 5, 100, 10_000))))
        drain, echo = (b"\x41" if rng.random() < 0.15 else b"\x42" for _ in range(2))
        self.receive(listed(0x13, *session, b"\x52\x01", *said, NOTHING, drain, echo))

    def answers(self) -> None:
        """Outcomes of the published messages."""
        seed = self.rng.randrange(1 << 30)
        self.steps.append(lambda world: world.tell(Random(seed)))

    def rare(self) -> None:
        """A consumer that times out or is cancelled, and ends."""
        rng = self.rng
        kind = rng.randrange(6)
        if kind == 0:
            ids = rng.choice([(), ((0, 3),), ((2, 99),)])

            def time_out(world: World) -> None:
                world.connection.timed_out(CONSUMER, ids)
                world.look()

            self.steps.append(time_out)
        elif kind == 1:
            gone = errors.ResourceDeleted("queue 'q' was deleted")

            def cancel(world: World) -> None:
                world.connection.cancelled(CONSUMER, gone)
                world.look()

            self.steps.append(cancel)
        elif kind == 2:
            self.receive(listed(0x16, b"\x52" + bytes([rng.randrange(2)]), b"\x41"))
        elif kind == 3:
            self.receive(listed(0x17))
        elif kind == 4:
            self.steps.append(lambda world: world.connection.missed(CONSUMER, self.delivered + 1))
        else:
            self.receive(listed(0x16, b"\x52" + bytes([rng.randrange(2)]), b"\x42"))


def play(steps: list[Step], twin: str) -> list[object]:
    """Return what was seen of a connection that takes these steps."""
    with played_by(twin):
        world = World()
        for step in steps:
            step(world)
            if world.connection.failure:
                break
        world.send()
        world.connection.end_of_input()
        world.send()
        world.connection.free()
    return world.seen


def compare(seed: int) -> list[object]:
    """Play a seed by all twins; return what was seen, which is the same of each."""
    steps = Script(seed).steps
    found = play(steps, "compiled")
    for twin in ("interpreted", "proton"):
        other = play(steps, twin)
        for at, (one, two) in enumerate(zip(found, other, strict=False)):
            assert one == two, f"seed {seed}, {twin}: {at}\n{one!r:.2000}\n{two!r:.2000}"
        assert len(found) == len(other), (seed, twin)
    return found


def main(first: int, seconds: float) -> int:
    """Compare seeds until the time is over; return 1 if one differs."""
    deadline, seed = time.monotonic() + seconds, first
    while seed == first or time.monotonic() < deadline:
        compare(seed)
        seed += 1
    print(f"{seed - first} streams")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
