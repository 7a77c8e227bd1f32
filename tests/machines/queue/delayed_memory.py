"""What delayed messages cost: `python -m tests.machines.queue.delayed_memory [messages]`.

Each is a run of its own: of a block's messages every other one comes back, then the others. First
while they wait for their time, then when it has come and no consumer is there. Prints bytes of the
process per message, milliseconds of processor time of an entry and of a snapshot. One process,
no cluster.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable

from tests.machines.queue.memory import messages_asked, rss, timed
from tests.machines.queue.world import block, config
from warren_machines.queue.codec import encode_submission
from warren_machines.queue.commands import (
    AnyCommand,
    Checkout,
    Enqueue,
    Return,
    SessionDown,
    Submission,
    Timer,
)
from warren_machines.queue.machine import QueueMachine
from warren_raft.machine import Meta
from warren_raft.versions import NEWEST

BLOCK_MESSAGES = 10
ROUND_BLOCKS = 700
DELAY_MS = 3_600_000


class Measured:
    """A queue with delayed retry, and what its entries cost."""

    def __init__(self) -> None:
        self.machine = QueueMachine(
            config(
                delayed_retry_type="all",
                delayed_retry_min_ms=DELAY_MS,
                delayed_retry_max_ms=DELAY_MS,
                delivery_limit=-1,
            )
        )
        self.state = self.machine.init()
        self.index = self.seq = 0
        self.now = 1_000_000
        self.took_ms: list[float] = []

    def apply(self, commands: Iterable[AnyCommand], data: bytes | None = None) -> None:
        """Apply one entry."""
        self.index += 1
        self.seq += 1
        submission = Submission(1, "n", self.seq, tuple(commands), version=NEWEST)
        entry = encode_submission(submission, data)
        began = time.process_time()
        self.machine.apply(Meta(self.index, 1, self.now), entry, self.state)
        self.took_ms.append((time.process_time() - began) * 1000)

    def show(self, title: str, messages: int, grown: int) -> None:
        """Print a line, and forget the entries."""
        took, self.took_ms = sorted(self.took_ms), []
        snapshot_ms, snapshot = timed(lambda: self.machine.snapshot(self.state))
        restore_ms, _ = timed(lambda: self.machine.restore(snapshot))
        print(
            f"{title:8} {grown / messages:6.1f} B "
            f" {len(took):8} entries, {sum(took) / 1000:6.1f} s,"
            f" longest {took[-1]:6.1f} ms, 99 % below"
            f" {took[len(took) * 99 // 100]:6.1f} ms;"
            f" snapshot {len(snapshot) / messages:5.2f} B, {snapshot_ms:6.1f} ms,"
            f" restored in {restore_ms:6.1f} ms",
            flush=True,
        )


def main() -> None:
    """Print one line for delayed messages, one for those that are due."""
    messages = messages_asked()
    measured = Measured()
    data = block(BLOCK_MESSAGES, 100)
    gc.collect()
    before, came = rss(), 0
    while came < messages:
        blocks = min(ROUND_BLOCKS, (messages - came) // BLOCK_MESSAGES or 1)
        for _ in range(blocks):
            measured.apply([Enqueue()], data)
        count = blocks * BLOCK_MESSAGES
        consumer = measured.seq
        measured.apply([Checkout(consumer, consumer, "t", 0)])
        for first in range(2):
            measured.now += 1
            ids = tuple((one, one) for one in range(first, count, 2))
            measured.apply([Return(consumer, ids, True)])
        measured.apply([SessionDown(consumer, False)])
        came += count
    assert measured.state.delayed.count == came, measured.state.delayed.count
    gc.collect()
    measured.show("delayed", came, rss() - before)
    measured.now += 2 * DELAY_MS
    while measured.state.delayed.count:
        measured.apply([Timer()])
    assert measured.state.order.returned_count == came, measured.state.order.returned_count
    gc.collect()
    measured.show("due", came, rss() - before)


if __name__ == "__main__":
    main()
