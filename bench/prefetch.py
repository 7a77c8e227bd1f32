"""What a micro-batch waits for in the source's calls, with the next claim opened ahead and without.

The calls are Spark's, in its order, without Spark: batches of two queues in turn, one read with
prefetchClaims=0 and one with 1, so that whatever else the machine does concerns both alike.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Final

from bench.peers import Warren
from bench.report import show
from pyspark_warren.claims.client import connect
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.options.options import parse_options
from pyspark_warren.surroundings import Surroundings
from warren import Admin
from warren.outgoing import SEND_WINDOW_BYTES, BlockSender
from warren_wire.block.block import encode

MESSAGES: Final = 1_000
BATCHES: Final = 200
WORK_S: Final = 0.05
"""What stands for Spark's work on a batch; the shortest batch of a Python source takes longer."""
SIDES: Final = ("0", "1")


class Query:
    """The driver's side of a query of one queue."""

    def __init__(self, warren: Warren, queue: str, ahead: str) -> None:
        options = parse_options(
            {
                "hosts": warren.targets(),
                "queue": queue,
                "prefetchClaims": ahead,
                "maxMessagesPerTrigger": str(MESSAGES),
            },
            "read",
            "stream",
        )
        self.source = ClaimDriver(connect(options), options, Surroundings.of_this_process())
        self.at: Offset = self.source.initial()
        self.waited_ms: list[float] = []

    def batch(self) -> None:
        """Make Spark's calls of one batch, and note how long they took."""
        began = time.perf_counter()
        end = self.source.latest(self.at, MESSAGES)
        self.source.plan(self.at, end)
        if self.at.registered:
            self.source.settle(self.at)
        self.waited_ms.append(1000 * (time.perf_counter() - began))
        assert end != self.at, "the queue is empty"
        self.at = end
        time.sleep(WORK_S)


def prefetch(rounds: int) -> list[dict[str, Any]]:
    """Measure both sides in turn, batch by batch; each round has queues of its own."""
    results = []
    with Warren() as warren, warren.connect() as connection:
        for number in range(rounds):
            queries = {}
            for ahead in SIDES:
                queue = f"rows-{number}-{ahead}"
                Admin(connection).queues.declare(queue)
                sender = BlockSender.to_exchange(
                    connection, "", window_bytes=SEND_WINDOW_BYTES, timeout_s=120
                )
                made = encode([bytes(100)] * MESSAGES, [b"\0\0"] * MESSAGES, (b"", queue.encode()))
                for _ in range(BATCHES + 3):
                    sender.send(made)
                sender.flush()
                sender.close()
                queries[ahead] = Query(warren, queue, ahead)
            before = {ahead: _entries(warren, number, ahead) for ahead in SIDES}
            for _ in range(BATCHES + 1):
                for query in queries.values():
                    query.batch()
            for ahead, query in queries.items():
                entries = _entries(warren, number, ahead) - before[ahead]
                query.source.close()
                results.append(_result(number, ahead, query.waited_ms[4:], entries))
    _show(results, rounds)
    return results


def _entries(warren: Warren, number: int, ahead: str) -> int:
    with warren.connect() as connection:
        return Admin(connection).members.get(f"rows-{number}-{ahead}").last_index


def _result(number: int, ahead: str, waited_ms: list[float], entries: int) -> dict[str, Any]:
    return {
        "round": number,
        "prefetch_claims": int(ahead),
        "p50_ms": statistics.median(waited_ms),
        "p90_ms": statistics.quantiles(waited_ms, n=10)[-1],
        "mean_ms": statistics.mean(waited_ms),
        "entries_per_batch": entries / BATCHES,
    }


def _show(results: list[dict[str, Any]], rounds: int) -> None:
    show(
        f"the source's calls of a micro-batch, {BATCHES} batches in turn, {rounds} rounds",
        [
            {
                "prefetchClaims": str(one["prefetch_claims"]),
                "p50 ms": f"{one['p50_ms']:.2f}",
                "p90 ms": f"{one['p90_ms']:.2f}",
                "mean ms": f"{one['mean_ms']:.2f}",
                "log entries": f"{one['entries_per_batch']:.2f}",
            }
            for one in results
        ],
        [],
    )
