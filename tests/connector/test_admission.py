"""When a micro-batch begins and how large it is, for one queue and for several."""

from __future__ import annotations

from typing import Any

import pytest

from connector.test_driver import World as OneQueue
from connector.test_queues_driver import World as SeveralQueues
from connector.test_queues_driver import counts
from pyspark_warren.claims.pacing import ADAPTIVE_FIRST, ADAPTIVE_LEAST, Admission
from pyspark_warren.errors import OptionError
from pyspark_warren.options.options import parse_options

MINIMA = {"minMessagesPerTrigger": "6", "maxTriggerDelay": "5s"}


class Source:
    """A source of one queue or of two, which is asked by its polls alone."""

    def __init__(self, several: bool, **options: str) -> None:
        self.world: Any = SeveralQueues("a", "b", **options) if several else OneQueue(**options)
        self.queues = ("a", "b") if several else ("q",)
        self.driver = self.world.driver()
        self.at = self.driver.latest(self.driver.initial(), 10)

    def publish(self, *counted: int) -> None:
        """That many messages; the second number into the second queue, or the only one."""
        for i, count in enumerate(counted):
            name = self.queues[min(i, len(self.queues) - 1)]
            self.world.broker.publish(name, [b"x" * 100] * count)

    def poll(self) -> int:
        """Messages of the batch that begins, 0: none does."""
        end = self.driver.latest(self.at, 10)
        if end is self.at:
            return 0
        self.at = end
        return sum(counts(end).values())


@pytest.fixture(params=[False, True], ids=["one queue", "several"])
def several(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_batch_waits_for_its_minimum(several: bool) -> None:
    source = Source(several, **MINIMA)
    source.publish(2, 2)
    assert source.poll() == 0 and source.world.broker.calls_of("open") == []
    source.publish(1, 1)
    assert source.poll() == 6


def test_messages_wait_no_longer_than_the_delay(several: bool) -> None:
    source = Source(several, **MINIMA)
    source.world.now_ms += 60_000  # the delay counts from when they were seen, not from the start
    source.publish(1, 1)
    assert source.poll() == 0
    began_ms = source.world.now_ms
    for _ in range(20):
        if source.poll():
            break
    assert 5_000 <= source.world.now_ms - began_ms <= 5_100
    source.publish(1)  # and they wait again
    assert source.poll() == 0


def test_either_minimum_is_enough(several: bool) -> None:
    source = Source(several, minBytesPerTrigger="900", **MINIMA)
    source.publish(2, 2)
    assert source.poll() == 0
    source.world.broker.publish(source.queues[0], [b"x" * 600])
    assert source.poll() == 5


def test_a_batch_that_an_earlier_run_began_does_not_wait(several: bool) -> None:
    source = Source(several, **MINIMA)
    source.publish(3, 3)
    start = source.at
    assert source.poll() == 6  # and the driver dies before the offset log
    source.driver, source.at = source.world.driver(), start
    assert source.poll() == 6


@pytest.mark.parametrize("now", [True, False], ids=["availableNow", "once"])
def test_triggers_that_end_do_not_wait(several: bool, now: bool) -> None:
    source = Source(several, **MINIMA)
    source.publish(1, 1)
    driver = source.driver = source.world.driver()
    if now:
        driver.prepare_available_now()
        assert source.poll() == 2 and source.poll() == 0
    else:
        end = driver.latest(source.at, None)
        assert sum(part.last for part in driver.plan(source.at, end)) == 2


def test_the_maximum_in_bytes_holds_for_all_queues_together(several: bool) -> None:
    source = Source(several, maxBytesPerTrigger="650")
    source.publish(10, 10)
    got = [source.poll() for _ in range(3)]
    assert all(4 <= count <= 6 for count in got), got


# ------------------------------------------------------------------ targetBatchDuration


def learnt(per_second: int, fixed_ms: int, batches: int, most: int = 200_000) -> list[int]:
    """Batch sizes of a query of that speed with a target of ten seconds; always enough is ready."""
    options = parse_options(
        {
            "queue": "q",
            "targetBatchDuration": "10s",
            "maxMessagesPerTrigger": str(most),
        },
        "read",
    )
    now_ms = 0
    admission = Admission(options, lambda: now_ms)
    sizes = []
    for _ in range(batches):
        sizes.append(admission.most(most))
        admission.began(sizes[-1])
        now_ms += fixed_ms + sizes[-1] * 1000 // per_second
        admission.ended()
        admission.ended()  # polls of an idle query
    return sizes


@pytest.mark.parametrize(
    ("per_second", "fixed_ms", "settles_at"),
    [(5_000, 0, 50_000), (5_000, 2_000, 40_000), (200, 100, 1_980), (1, 0, ADAPTIVE_LEAST)],
)
def test_batches_grow_and_shrink_to_the_duration(
    per_second: int, fixed_ms: int, settles_at: int
) -> None:
    sizes = learnt(per_second, fixed_ms, 25)
    assert sizes[0] == ADAPTIVE_FIRST
    assert sizes[-1] == pytest.approx(settles_at, rel=0.02)
    assert max(sizes) <= max(ADAPTIVE_FIRST, 1.05 * settles_at)


def test_the_maximum_is_the_ceiling_of_what_is_learnt() -> None:
    assert learnt(1_000_000, 0, 20, most=30_000)[-1] == 30_000


def test_a_quick_batch_that_was_small_teaches_nothing() -> None:
    options = parse_options({"queue": "q", "targetBatchDuration": "10s"}, "read")
    now_ms = 0
    admission = Admission(options, lambda: now_ms)
    admission.began(3)
    now_ms += 150
    admission.ended()
    assert admission.most(200_000) == ADAPTIVE_FIRST


def test_the_next_batch_is_as_large_as_the_last_ones_duration_lets_it(several: bool) -> None:
    source = Source(several, targetBatchDuration="1s", maxMessagesPerTrigger="400")
    source.publish(2_000, 2_000)
    driver, world, at, sizes = source.driver, source.world, source.at, []
    for _ in range(6):
        end = driver.latest(at, 400)
        claims = [claim for each in end.queues.values() for claim in each.claims]
        sizes.append(sum(claim.messages for claim in claims))
        world.now_ms += 5 * sizes[-1]  # 200 a second
        at = end
    assert sizes[0] == 400 and sizes[-1] == pytest.approx(200, abs=10), sizes


# ------------------------------------------------------------------ options


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"minMessagesPerTrigger": "300000"}, "minMessagesPerTrigger=300000 is above maxMessages"),
        ({"minBytesPerTrigger": "1g"}, "is above maxBytesPerTrigger=268435456"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay needs minMessagesPerTrigger or minBytes"),
        ({"targetBatchDuration": "5"}, "with its unit"),
        ({"queues": "a"}, "options queue and queues: give one of them"),
        ({"queuePattern": "a"}, "options queue and queuePattern: give one"),
        ({"queueSharing": "fair"}, "queueSharing needs queues or queuePattern"),
    ],
)
def test_contradictions_are_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse_options({"queue": "q", **given}, "read")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "option queue is missing: give the name of the queue"),
        ({"queues": "a,,b"}, "a name is empty"),
        ({"queues": "a,b,a"}, "'a' is there twice"),
        ({"queues": '["a",'}, "JSON list"),
        ({"queues": '["a",1]'}, "JSON list"),
        ({"queues": ",".join(map(str, range(1025)))}, "1025 names, 1024 is the limit"),
        ({"queuePattern": "("}, "should be regular expression but is invalid"),
        ({"queuePattern": r"(a)\1"}, "has a back reference, which is not supported"),
        ({"queuePattern": "a" * 1025}, "must not exceed 1024 bytes"),
        ({"queues": "a", "queueSharing": "first"}, "give fair or backlog"),
        ({"queuePattern": "a", "broker": "amqp"}, "option queuePattern is for broker=warren"),
    ],
)
def test_a_selection_that_is_none_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        parse_options(given, "read")


def test_names_with_commas_come_in_a_json_list() -> None:
    assert parse_options({"queues": '["a,b", " c"]'}, "read").queues == ("a,b", " c")
    assert parse_options({"queues": "a, b"}, "read").queues == ("a", "b")
