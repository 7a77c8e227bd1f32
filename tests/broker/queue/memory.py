"""What a ready message costs in memory: `python -m tests.broker.queue.memory [messages]`.

The machine's state and the log's places, after every message came and none was taken; what the
process grew by beside it (RSS); how long the loop stands still for a snapshot. Needs no cluster.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.broker.queue.world import block, config
from warren_broker.queue.codec import encode_submission
from warren_broker.queue.commands import Enqueue, Settle, Submission
from warren_broker.queue.machine import QueueMachine
from warren_broker.queue.state import QueueState
from warren_raft.machine import Meta
from warren_raft.storage.format import RECORD_HEADER_BYTES
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.wal import Place

FILE_BYTES = 64 << 20
BATCH_END_BYTES = 40


def rss() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def entries(
    messages: int, size: Callable[[], int], batch: Callable[[], int], settles: bool
) -> Iterator[bytes]:
    """One entry per block of batch() messages of size() bytes, and now and then another one."""
    done = seq = 0
    random = Random(3)
    while done < messages:
        count = batch()
        seq += 1
        if settles and random.random() < 0.4:
            yield encode_submission(Submission(2, "n", seq, (Settle(1, ((0, 0),)),)))
        data = block(count, size())
        yield encode_submission(Submission(0, "n", seq, (Enqueue(),)), data)
        done += count


def fill(found: Iterator[bytes]) -> tuple[QueueMachine, QueueState, GroupLog, list[int]]:
    """The machine and the log that came of those entries, each a batch with its end."""
    machine = QueueMachine(config())
    state = machine.init()
    log = GroupLog(1)
    file, offset, index = 1, 40, 0
    for entry in found:
        index += 1
        machine.apply(Meta(index, 1, 1000 + index), entry, state)
        log.append_at(index, 1, Place(file, offset, len(entry)))
        offset += RECORD_HEADER_BYTES + len(entry) + BATCH_END_BYTES
        if offset > FILE_BYTES:
            file, offset = file + 1, 40
    return machine, state, log, [index]


def timed(what: Callable[[], Any]) -> tuple[float, Any]:
    """(milliseconds, what it gave)."""
    began = time.perf_counter()
    result = what()
    return (time.perf_counter() - began) * 1000, result


def main() -> None:
    """Print the table."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    random = Random(1)
    shapes: dict[str, tuple[Callable[[], int], Callable[[], int], bool]] = {
        "blocks of 500 × 100 B": (lambda: 100, lambda: 500, False),
        "blocks of 20 × 100 B": (lambda: 100, lambda: 20, False),
        "single messages of 100 B": (lambda: 100, lambda: 1, False),
        "single, 50 … 1500 B, settles between": (
            lambda: random.randint(50, 1500), lambda: 1, True
        ),
        "1 … 3 together, 50 … 1500 B, settles": (
            lambda: random.randint(50, 1500), lambda: random.randint(1, 3), True
        ),
    }  # fmt: skip
    print(f"{messages} messages; bytes per message, milliseconds of the loop")
    for title, (size, batch, settles) in shapes.items():
        gc.collect()
        before = rss()
        machine, state, log, (index,) = fill(entries(messages, size, batch, settles))
        gc.collect()
        grown = rss() - before
        live_ms, live = timed(lambda m=machine, s=state: m.live_indexes(s))
        snapshot_ms, snapshot = timed(lambda m=machine, s=state: m.snapshot(s))
        needed_ms, _ = timed(lambda g=log, x=live: g.needed_bytes(x))
        drop_ms, _ = timed(lambda g=log, x=live, i=index: g.drop_to(i, x, 1))
        gc.collect()
        after = rss() - before
        restore_ms, _ = timed(lambda m=machine, b=snapshot: m.restore(b))
        print(
            f"{title:38} {grown / messages:6.2f} B, with a snapshot {after / messages:6.2f} B"
            f" ({len(snapshot) / messages:5.2f} B)"
            f"   live {live_ms:7.1f}  snapshot {snapshot_ms:6.1f}  needed {needed_ms:6.1f}"
            f"  drop {drop_ms:6.1f}  restore {restore_ms:6.1f}"
        )
        del machine, state, log, live, snapshot


if __name__ == "__main__":
    main()
