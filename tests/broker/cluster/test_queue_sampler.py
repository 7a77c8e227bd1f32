"""A node's samples of its queues, and what it forgets of those that were deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from warren_broker.cluster.queue_sampler import QueueSampler
from warren_broker.counting.counters import Counters
from warren_broker.counting.message_stats import NODE_STATS, PUBLISH, MessageCounts, sample_width
from warren_raft.runtime.host import UnknownGroup

GROUP, DELETED = 5, 6


class Epoch:
    """A clock that is set."""

    now_ms = 0


def begun(
    calls: list[Callable[[], None]], counts: MessageCounts, epoch: Epoch | None = None
) -> QueueSampler:
    """A sampler; its next look is the last of the calls."""
    queue: Any = SimpleNamespace(vhost="/", name="q", store_of="")
    of_clock = epoch or Epoch()

    def is_leader(group: int) -> bool:
        raise UnknownGroup(group, "n1")

    clock = SimpleNamespace(
        monotonic_ms=lambda: 1_000 * len(calls), epoch_ms=lambda: of_clock.now_ms
    )
    cluster: Any = SimpleNamespace(
        loop=SimpleNamespace(clock=clock, call_later=lambda ms, call: calls.append(call)),
        queue_counts=counts,
        counters=Counters(),
        effects=SimpleNamespace(led=set()),
        host=SimpleNamespace(is_leader=is_leader, node_id="n1", log_work=lambda: (1, 2, 3)),
    )
    definitions: Any = SimpleNamespace(state=SimpleNamespace(groups={GROUP: queue}, scopes={}))
    sampler = QueueSampler(cluster, definitions, {}, Path("/"), 100)
    sampler.start()
    return sampler


def test_counts_that_come_after_a_queues_deletion_are_forgotten_at_the_next_look() -> None:
    """1. A queue is deleted, and its counts.  2. What was on its way counts once more."""
    calls: list[Callable[[], None]] = []
    counts = MessageCounts()
    begun(calls, counts)
    counts.published(GROUP, 3)
    counts.forget(DELETED)
    counts.published(DELETED, 1)
    calls[-1]()
    assert list(counts.rows) == [GROUP] and counts.rows[GROUP][PUBLISH] == 3
    counts.settled("/", DELETED, 1)
    calls[-1]()
    assert list(counts.rows) == [GROUP], "whenever it comes"


def test_no_sample_is_dated_later_than_now_when_the_clock_was_set_back() -> None:
    calls: list[Callable[[], None]] = []
    epoch = Epoch()
    sampler = begun(calls, MessageCounts(), epoch)
    for epoch.now_ms in (10_000, 20_000, 5_000, 2_000):
        calls[-1]()
        (kept,) = sampler.read_gauges(True).samples
        times = kept.numbers[:: sample_width(NODE_STATS)]
        assert times[-1] <= epoch.now_ms and times == sorted(times)
