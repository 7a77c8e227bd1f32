"""What a block costs the machine: `python -m tests.machines.queue.cost`.

Processor time of one enqueue with delivery plus one settlement, per block, without raft and
sockets; the goal is at most 60 µs for 500 messages. Then the memory of a backlog.
"""

from __future__ import annotations

import time
import tracemalloc
from random import Random

from tests.machines.queue.world import block, config
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import (
    AnyCommand,
    Checkout,
    Enqueue,
    Settle,
    Submission,
)
from warren_machines.queue.effects import Deliver
from warren_machines.queue.machine import QueueMachine
from warren_raft.machine import Applied, Meta
from warren_raft.versions import NEWEST


def turnover(data: bytes, consumers: int = 1, blocks: int = 2000) -> tuple[float, float]:
    """Microseconds of processor time per block: (enqueue and deliver, settle)."""
    machine = QueueMachine(config())
    state = machine.init()
    index = 0

    def apply(seq: int, uplink: int, *commands: AnyCommand, with_block: bytes = b"") -> Applied:
        nonlocal index
        index += 1
        entry = encode_submission(Submission(uplink, "n", seq, commands, NEWEST), with_block)
        return machine.apply(Meta(index, 1, 1000 + index), entry, state)

    for number in range(consumers):
        apply(number + 1, 1, Checkout(number, number, "t", 1000))
    first_unsettled = [0] * consumers
    enqueueing = settling = 0.0
    for number in range(1, blocks + 1):
        start = time.process_time()
        applied = apply(number, 2, Enqueue(), with_block=data)
        enqueueing += time.process_time() - start
        settles: list[AnyCommand] = []
        for effect in applied.effects:
            if isinstance(effect, Deliver):
                last = effect.deliveries[-1]
                end = last.first_msg_id + last.last - last.first
                settles.append(Settle(effect.consumer, ((first_unsettled[effect.consumer], end),)))
                first_unsettled[effect.consumer] = end + 1
        start = time.process_time()
        apply(consumers + number, 1, *settles)
        settling += time.process_time() - start
    assert not state.contents.table
    return enqueueing / blocks * 1e6, settling / blocks * 1e6


def backlog(data: bytes, count: int, blocks: int) -> float:
    """Bytes of memory per ready message of a backlog."""
    machine = QueueMachine(config())
    state = machine.init()
    tracemalloc.start()
    for number in range(1, blocks + 1):
        entry = encode_submission(Submission(1, "n", number, (Enqueue(),), NEWEST), data)
        machine.apply(Meta(number, 1, 1000), entry, state)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return held / (count * blocks)


def main() -> None:
    """Print both tables."""
    random = Random(1)
    near = [random.randint(180, 220) for _ in range(500)]
    wide = [random.randint(10, 2000) for _ in range(500)]
    mixed = [random.randint(0, 9) for _ in range(500)]
    for title, data, consumers in (
        ("500 × 100 B", block(500, 100), 1),
        ("500 of 180 … 220 B", block(500, near), 1),
        ("500 of 10 … 2000 B", block(500, wide), 1),
        ("500 of 10 priorities", block(500, 100, mixed), 1),
        ("500, three consumers", block(500, 100), 3),
        ("1", block(1, 100), 1),
    ):
        enqueueing, settling = turnover(data, consumers)
        print(f"{title:24} enqueue, deliver {enqueueing:6.1f} µs   settle {settling:5.1f} µs")
    for title, data, count in (
        ("500 × 100 B", block(500, 100), 500),
        ("500 of 180 … 220 B", block(500, near), 500),
        ("500 of 10 … 2000 B", block(500, wide), 500),
        ("1", block(1, 100), 1),
    ):
        print(f"{title:24} backlog {backlog(data, count, 2000):8.2f} B per message")


if __name__ == "__main__":
    main()
