"""What a ready message costs in memory: `python -m tests.machines.queue.memory [messages]`.

The machine's state and the log's places, after every message came and none was taken; what the
process grew by beside it (RSS); how long the loop stands still for a snapshot. Needs no cluster.
"""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from random import Random
from typing import Any

from tests.machines.queue.world import block, config
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import Enqueue, Settle, Submission
from warren_machines.queue.machine import QueueMachine
from warren_machines.queue.state import QueueState
from warren_raft.machine import Meta
from warren_raft.storage.format import RECORD_HEADER_BYTES
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.wal import Place
from warren_raft.versions import NEWEST

FILE_BYTES = 64 << 20
BATCH_END_BYTES = 40
Sizes = Callable[[], int | Sequence[int]]


def rss() -> int:
    """Bytes of this process that are in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


a_block = lru_cache(4096)(block)


def entries(messages: int, size: Sizes, batch: Callable[[], int], settles: bool) -> Iterator[bytes]:
    """One entry per block of batch() messages of size() bytes, and now and then another one."""
    done = seq = 0
    random = Random(3)
    while done < messages:
        count = batch()
        seq += 1
        if settles and random.random() < 0.4:
            yield encode_submission(Submission(2, "n", seq, (Settle(1, ((0, 0),)),), NEWEST))
        data = a_block(count, size())
        yield encode_submission(Submission(0, "n", seq, (Enqueue(),), NEWEST), data)
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
    began = time.process_time()
    result = what()
    return (time.process_time() - began) * 1000, result


def shapes(random: Random) -> dict[str, tuple[Sizes, Callable[[], int], bool]]:
    """Title to (size of a message, messages of a block, whether settles stand between)."""
    wide = partial(random.randint, 50, 1500)
    some = [tuple(random.randint(10, 2000) for _ in range(500)) for _ in range(20)]
    return {
        "blocks of 500 x 100 B": (lambda: 100, lambda: 500, False),
        "blocks of 500 x 10 ... 2000 B": (partial(random.choice, some), lambda: 500, False),
        "blocks of 20 x 100 B": (lambda: 100, lambda: 20, False),
        "single messages of 100 B": (lambda: 100, lambda: 1, False),
        "single, 50 ... 1500 B": (wide, lambda: 1, False),
        "single, 50 ... 1500 B, settles": (wide, lambda: 1, True),
        "1 ... 3, 50 ... 1500 B, settles": (wide, partial(random.randint, 1, 3), True),
    }


def measure(title: str, messages: int) -> None:
    """Print one line of the table."""
    size, batch, settles = shapes(Random(1))[title]
    for _ in fill(entries(2000, size, batch, settles)):
        pass  # what Python itself needs once
    gc.collect()
    before = rss()
    machine, state, log, (index,) = fill(entries(messages, size, batch, settles))
    gc.collect()
    grown = rss() - before
    live_ms, live = timed(lambda: machine.live_indexes(state))
    snapshot_ms, snapshot = timed(lambda: machine.snapshot(state))
    needed_ms, _ = timed(lambda: log.needed_bytes(live))
    drop_ms, _ = timed(lambda: log.drop_to(index, live, 1))
    gc.collect()
    after = rss() - before
    restore_ms, _ = timed(lambda: machine.restore(snapshot))
    print(
        f"{title:32} {grown / messages:6.2f} {after / messages:6.2f}"
        f" {(len(snapshot) + len(live.tobytes())) / messages:6.2f}"
        f"   {live_ms:6.1f} {snapshot_ms:6.1f} {needed_ms:6.1f} {drop_ms:6.1f} {restore_ms:6.1f}",
        flush=True,
    )


def messages_asked() -> int:
    """How many messages the command line asks for."""
    return int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000


def main() -> None:
    """Print the table; every line in a process of its own."""
    messages = messages_asked()
    if len(sys.argv) > 2:
        measure(sys.argv[2], messages)
        return
    print(f"{messages} messages: bytes of memory per message, then with a snapshot, bytes of the")
    print("snapshot; milliseconds of the loop: live indexes, snapshot, worth, letting go, restore")
    for title in shapes(Random(1)):
        command = [sys.executable, "-m", "tests.machines.queue.memory", str(messages), title]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
