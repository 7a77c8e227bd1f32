"""The units of work, and the process in which valgrind counts them: `python -m instructions.cases`.

The process loads everything, then forks twice for each case: one child prepares and works WARM
times, the other one so many times more. The difference is the work's alone.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Callable
from random import Random

from sim.one import NOW, One
from tests.broker.clients10 import link_twins
from tests.machines.queue.cost import turnover
from tests.machines.queue.world import block
from tests.wire.kernel import frames
from warren_broker.clients10.link_requests import PublishOutcomes
from warren_machines.queue.commands import Delivery, Settle
from warren_raft.messages import AppendReply
from warren_raft.storage.format import RecordKind, encode_record
from warren_wire import kernel
from warren_wire.block.block import Block, encode
from warren_wire.kernel import Selection

WARM = 4
MESSAGES = 500
FEW = 50
"""So few that no buffer is moved when it grows: that depends on the heap, not on the work."""
BODY = b"x" * 100
ROUNDS = 50
"""More than any case that makes its input beforehand works."""
FRAME_MAX = 131_072
Work = Callable[[], object]


def _published(messages: int) -> bytes:
    return frames.publish(1, b"", b"queue", BODY) * messages


def _scanned() -> object:
    scanner = kernel.load("compiled").scan.FrameScanner(FRAME_MAX)
    scanner.feed(_published(MESSAGES))
    return scanner.table


def scan() -> Work:
    """Frames of basic.publish become a table of messages."""
    scanner, data = kernel.load("compiled").scan.FrameScanner(FRAME_MAX), _published(FEW)

    def work() -> None:
        scanner.take_table()
        scanner.feed(data)

    return work


def assemble() -> Work:
    """A table of messages becomes a block."""
    loaded = kernel.load("compiled")
    whole = [Selection(_scanned(), 0, MESSAGES)]  # type: ignore[arg-type]
    return lambda: loaded.assemble.assemble(whole)


def deaths_apart() -> Work:
    """Dead letters that a client publishes again: x-death is put behind the other headers."""
    scanner = kernel.load("compiled").scan.FrameScanner(FRAME_MAX)
    letter = frames.properties(
        headers=frames.table(
            (b"x-death", frames.deaths(frames.death(b"queue"), frames.death(b"other"))),
            (b"x-first-death-queue", b"S\0\0\0\5other"),
        )
    )
    scanner.feed(frames.publish(1, b"", b"queue", BODY, letter) * MESSAGES)
    table = scanner.table
    published = bytes(table.properties)

    def work() -> None:
        table.properties[:] = published
        kernel.set_deaths_apart(table, 0, MESSAGES)

    return work


def verify() -> Work:
    """A received block is decoded and verified."""
    data = assemble()()
    return lambda: Block.decode(data)  # type: ignore[arg-type]


def deliver() -> Work:
    """A block becomes frames of basic.deliver."""
    loaded, stored = kernel.load("compiled"), Block.decode(assemble()())  # type: ignore[arg-type]
    tag = "ctag1.0123456789"
    return lambda: loaded.deliver.format_deliveries(
        bytearray(), stored, 0, MESSAGES, 1, tag, 1, False, FRAME_MAX, None
    )


def queue_of_many() -> Work:
    """The queue's machine takes a block of 500 messages, delivers it, and settles it."""
    sizes = [Random(1).randint(180, 220) for _ in range(MESSAGES)]
    data = block(MESSAGES, sizes)
    return lambda: turnover(data, blocks=20)


def queue_of_one() -> Work:
    """The same with blocks of one message."""
    data = block(1, 100)
    return lambda: turnover(data, blocks=20)


def replicate() -> Work:
    """A leader proposes an entry, two followers acknowledge it, it is committed and applied."""
    node = (one := One(1).lead()).node

    def take() -> None:
        while (ready := node.ready()) is not None:
            if ready.entries:
                one.log.put(ready.entries)
            if ready.committed:
                node.applied_to(ready.committed[-1].index)
            if ready.writes:
                node.durable(ready.sequence)

    def work() -> None:
        index = node.propose(BODY, NOW)
        take()
        for voter in ("a", "c"):
            node.step(AppendReply(1, voter, "b", node.term, True, index, index), NOW)
            take()

    return work


def record() -> Work:
    """An entry of 1 KiB becomes a record of the write-ahead log."""
    data = BODY * 10
    return lambda: encode_record(7, 1, RecordKind.ENTRY, 1, 5, 3, data)


def publish10() -> Work:
    """Transfers become a request, its answer their outcomes."""
    connection, payload = link_twins.begun(), b"\x00\x53\x75\xa0\x64" + BODY
    ready = iter(
        [
            b"".join([link_twins.transfer(first + i, payload) for i in range(FEW)])
            for first in range(0, ROUNDS * FEW, FEW)
        ]
    )

    def work() -> None:
        connection.receive(next(ready))
        for request in connection.take_requests():
            said = PublishOutcomes(accepted=range(request.table.count), last=True)
            connection.answer(request.token, said)
        connection.take_output()
        assert not connection.failure

    return work


def consume10() -> Work:
    """A block's messages become transfers, and a disposition of each is an outcome."""
    connection = link_twins.begun()
    stored = Block.decode(encode([BODY] * FEW, [b"\x00\x00"] * FEW, (b"", b"q"), 4, None))
    ready = iter(
        [
            (
                Delivery(first, 1, 0, FEW - 1),
                b"".join([link_twins.accepted(first + i) for i in range(FEW)]),
                link_twins.credit(first + FEW, FEW),
            )
            for first in range(0, ROUNDS * FEW, FEW)
        ]
    )
    connection.receive(link_twins.credit(0, FEW))

    def work() -> None:
        delivery, outcomes, credit = next(ready)
        connection.deliver(link_twins.CONSUMER, delivery, stored)
        connection.take_output()
        connection.receive(outcomes + credit)
        settled = [one for one in connection.take_requests() if isinstance(one, Settle)]
        assert settled[-1].msg_ids[-1][1] == delivery.first_msg_id + FEW - 1
        connection.take_output()

    return work


CASES: dict[str, tuple[Callable[[], Work], int, int]] = {
    "scan, per message": (scan, 400, FEW),
    "deaths apart, per message": (deaths_apart, 40, MESSAGES),
    "assemble, per message": (assemble, 40, MESSAGES),
    "verify, per block": (verify, 200, 1),
    "deliver, per message": (deliver, 40, MESSAGES),
    "queue, per block of 500": (queue_of_many, 10, 20),
    "queue, per block of one": (queue_of_one, 10, 20),
    "replicate, per entry": (replicate, 200, 1),
    "record, per entry": (record, 2_000, 1),
    "publish over 1.0, per message": (publish10, 40, FEW),
    "consume over 1.0, per message": (consume10, 40, FEW),
}
"""Name to (what prepares it and returns the work, times, units in one time)."""


def main() -> None:
    """Fork the children; print the pid of each."""
    gc.disable()
    kernel.load("compiled")
    said = []
    for name, (prepare, times, units) in CASES.items():
        for count in (WARM, WARM + times):
            pid = os.fork()
            if not pid:
                work = prepare()
                for _ in range(count):
                    work()
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            assert not status, (name, status)
            said.append((name, times * units, pid))
    print(json.dumps(said))


if __name__ == "__main__":
    main()
