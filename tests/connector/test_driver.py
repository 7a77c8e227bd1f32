"""The driver's decisions against the fake broker, call by call as Spark makes them."""

from __future__ import annotations

import pytest
from spark_world.fake import FakeBroker, FakeClient, ReaderState
from spark_world.offsets import only

from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.errors import (
    CheckpointBehindError,
    CheckpointError,
    ClaimLostError,
    FencedError,
)
from pyspark_warren.options.options import parse_options
from pyspark_warren.surroundings import Surroundings
from warren import errors as client_errors


class World:
    """A broker, and drivers that come and go on a clock that only moves when they sleep."""

    def __init__(self, **options: str) -> None:
        self.broker = FakeBroker()
        self.broker.declare("q")
        self.now_ms = 0
        self.slept: list[float] = []
        self.minted = 0
        given = {"queue": "q", "maxMessagesPerTrigger": "10", "prefetchClaims": "0"}
        self.options = {**given, **options}

    def driver(self, **more: str) -> ClaimDriver:
        options = parse_options({**self.options, **more}, "read")
        return ClaimDriver(
            FakeClient.local(self.broker),
            options,
            Surroundings(lambda: self.now_ms, self.sleep, self.mint),
        )

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_ms += int(seconds * 1000)

    def mint(self) -> str:
        self.minted += 1
        return f"r{self.minted}"

    def publish(self, count: int) -> None:
        self.broker.publish("q", [b"%d" % i for i in range(count)])

    @property
    def state(self) -> dict:
        return self.broker.state("q")


def with_messages(count: int) -> World:
    world = World()
    world.publish(count)
    return world


def started(world: World, driver: ClaimDriver) -> Offset:
    """Pass the first batch, which is empty."""
    hello = driver.latest(driver.initial(), 10)
    assert (only(hello).number, hello.registered, only(hello).claims) == (0, True, ())
    return hello


def first_batch(world: World, published: int) -> tuple[ClaimDriver, Offset, Offset]:
    """Publish messages and claim 10 of them; return the driver, start and end of the batch."""
    world.publish(published)
    driver = world.driver()
    start = started(world, driver)
    return driver, start, driver.latest(start, 10)


def test_the_initial_offset_is_the_same_however_often() -> None:
    driver = World().driver()
    assert driver.initial() == driver.initial()


def test_no_claim_is_opened_before_the_reader_is_in_the_checkpoint() -> None:
    world = World()
    world.publish(5)
    first = world.driver()
    started(world, first)  # and the driver dies before the offset log
    assert world.state["claims"] == {}
    again = world.driver()
    end = again.latest(started(world, again), 10)
    assert (only(end).reader, only(end).number, only(end).claims[0].messages) == ("r2", 1, 5)


def test_trigger_once_reads_in_its_only_batch() -> None:
    world = with_messages(25)
    driver = world.driver()
    start = driver.initial()
    end = driver.latest(start, None)
    assert world.state["claims"] == {}  # not before the offset log
    slices = driver.plan(start, end)
    assert [(part.first, part.last) for part in slices] == [(0, 25)]
    assert driver.plan(start, end) == slices
    assert driver.latest(end, None) is end
    assert (world.state["acknowledged"], world.state["claims"]) == (25, {})


def test_once_left_the_whole_queue_to_a_reader_that_no_checkpoint_knew() -> None:
    world = with_messages(25)
    died = world.driver()
    died.latest(died.initial(), None)  # and the driver dies before the offset log
    again = world.driver()
    start = again.initial()
    end = again.latest(start, None)
    world.publish(3)  # what comes before the claim is opened belongs to it
    (part,) = again.plan(start, end)
    assert (part.reader, part.first, part.last) == ("r2", 0, 28)
    world.publish(4)  # the driver dies while it works on the batch, and plans it again
    last = world.driver()
    assert last.plan(last.initial(), Offset.from_dict(end.to_dict())) == (part,)
    assert only(last.latest(end, None)).claims[0].messages == 4
    assert world.state["acknowledged"] == 28


def test_once_plans_nothing_when_nothing_is_ready() -> None:
    world = World()
    driver = world.driver()
    start = driver.initial()
    assert driver.latest(start, None) is start


def emptied(world: World) -> Offset:
    """The end of the first batch of `once`; other consumers took its messages before its plan."""
    world.publish(5)
    driver = world.driver()
    start = driver.initial()
    end = driver.latest(start, None)
    world.broker.queues["q"].ready.clear()
    assert driver.plan(start, end) == ()
    return end


def test_once_failed_until_messages_came_when_other_consumers_took_the_first_ones() -> None:
    world = World()
    end = emptied(world)
    world.publish(2)  # the driver dies before the commit log; the batch must not have rows now
    again = world.driver()
    assert again.plan(again.initial(), end) == ()
    last = again.latest(end, None)
    assert [(part.number, part.last) for part in again.plan(end, last)] == [(2, 2)]
    assert again.latest(last, None) is last
    assert (world.state["acknowledged"], world.state["claims"]) == (2, {})


@pytest.mark.parametrize("limit", [10, None])
def test_an_empty_claim_that_somebody_left_open_does_not_hold_its_reader_up(
    limit: int | None,
) -> None:
    world = World(readerId="mine")
    left = FakeClient.local(world.broker).reader("q", "mine")
    left.register()
    assert left.open(1, max_messages=1, max_bytes=1, keep_empty=True).open
    world.publish(2)
    driver = world.driver()
    start = driver.initial()
    read = []
    for _ in range(4):
        end = driver.latest(start, limit)
        read += [(part.number, part.last) for part in driver.plan(start, end)]
        start = end
    assert (read, world.state["settled"]) == ([(2, 2)], {"mine": 2})


@pytest.mark.parametrize("mode", ["fail", "continue"])
def test_once_is_told_when_its_first_claim_was_released(mode: str) -> None:
    world = World(onClaimLost=mode)
    world.publish(5)
    driver = world.driver()
    start = driver.initial()
    end = driver.latest(start, None)
    driver.plan(start, end)
    world.broker.release_claims("q")
    if mode == "fail":
        with pytest.raises(client_errors.ClaimLost):
            world.driver().plan(start, end)
    else:
        again = world.driver()
        assert again.plan(start, end) == ()
        hello = again.latest(end, None)
        assert again.plan(hello, again.latest(hello, None))[0].last == 5


def test_a_reader_whose_numbers_do_not_begin_at_one_reads_its_first_claim() -> None:
    for limit in (10, None):
        world = World()
        world.publish(5)
        world.broker.queues["q"].readers["r1"] = ReaderState(settled=7)
        driver = world.driver()
        start = driver.initial()
        end = driver.latest(start, limit)
        assert only(end).number == (7 if limit else 8)
        if limit:
            assert driver.plan(start, end) == ()
            start, end = end, driver.latest(end, limit)
        assert [(part.number, part.last) for part in driver.plan(start, end)] == [(8, 5)]
        assert driver.latest(end, limit) is end
        assert world.state["acknowledged"] == 5


def test_a_driver_that_died_after_the_claim_gets_the_same_one() -> None:
    world = World()
    _driver, start, end = first_batch(world, 25)
    world.publish(3)
    assert world.driver().latest(start, 10) == end
    assert world.state["claims"] == {"r1": {1: 10}}


def test_settled_is_what_spark_named_as_start_and_nothing_else() -> None:
    world = with_messages(25)
    driver = world.driver()
    one = driver.latest(started(world, driver), 10)
    assert world.state["acknowledged"] == 0
    two = driver.latest(one, 10)
    assert world.state["acknowledged"] == 10
    driver.settle(one)  # commit(end) comes late
    three = driver.latest(two, 10)
    assert (world.state["acknowledged"], only(three).claims[0].messages) == (20, 5)
    assert driver.latest(three, 10) is three
    assert world.state["acknowledged"] == 25 and world.state["ready"] == 0


def test_a_restart_plans_its_batch_first_then_settles_it() -> None:
    world = World(partitions="2")
    _driver, start, end = first_batch(world, 10)
    again = world.driver()
    slices = again.plan(start, end)
    assert [(part.reader, part.number, part.first, part.last) for part in slices] == [
        ("r1", 1, 0, 5),
        ("r1", 1, 5, 10),
    ]
    assert world.state["acknowledged"] == 0
    again.latest(end, 10)
    assert world.state["acknowledged"] == 10


def test_an_older_driver_is_fenced() -> None:
    world = World()
    old, _start, end = first_batch(world, 25)
    world.driver().latest(end, 10)
    with pytest.raises(FencedError, match="in use twice"):
        old.latest(end, 10)
    with pytest.raises(FencedError):
        old.settle(end)


def test_a_replaying_driver_fences_before_it_reads() -> None:
    world = World()
    old, start, end = first_batch(world, 10)
    world.driver().plan(start, end)
    with pytest.raises(FencedError):
        old.latest(end, 10)


def test_an_idle_query_asks_less_and_less_often() -> None:
    world = World(pollInterval="100ms")
    driver = world.driver()
    start = started(world, driver)
    for _ in range(7):
        assert driver.latest(start, 10) is start
    assert len(world.broker.calls_of("open")) == 1
    assert world.slept == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    world.publish(1)
    end = driver.latest(start, 10)
    assert driver.latest(end, 10) is end
    assert driver.latest(end, 10) is end
    assert world.slept[-1] == pytest.approx(0.1)


def test_available_now_reads_what_was_there_and_no_more() -> None:
    world = with_messages(25)
    driver = world.driver()
    driver.prepare_available_now()
    at = started(world, driver)
    got = []
    while True:
        world.publish(7)  # still arriving
        end = driver.latest(at, 10)
        if end == at:
            break
        got.append(only(end).claims[0].messages)
        at = end
    assert got == [10, 10, 5]
    assert world.state["acknowledged"] == 25 and world.state["claims"] == {}


def test_available_now_does_not_count_the_claim_it_inherits() -> None:
    world = with_messages(25)
    died = world.driver()
    start = started(world, died)
    died.latest(start, 10)
    driver = world.driver()
    driver.prepare_available_now()
    got, at = [], start
    while (end := driver.latest(at, 10)) != at:
        got.append(only(end).claims[0].messages)
        at = end
    assert got == [10, 10, 5] and world.state["acknowledged"] == 25


def test_available_now_ends_when_others_were_faster() -> None:
    world = with_messages(25)
    driver = world.driver()
    driver.prepare_available_now()
    start = started(world, driver)
    world.broker.queues["q"].ready.clear()
    assert driver.latest(start, 10) is start


def test_a_released_claim_is_not_silently_replaced_by_other_rows() -> None:
    world = World()
    _, start, _ = first_batch(world, 25)
    world.broker.release_claims("q")
    with pytest.raises(ClaimLostError, match="onClaimLost=continue"):
        world.driver().latest(start, 10)


def test_continue_goes_on_as_a_new_reader() -> None:
    world = World(onClaimLost="continue")
    _, start, _ = first_batch(world, 25)
    world.broker.release_claims("q")
    again = world.driver()
    hello = again.latest(start, 10)
    assert (only(hello).reader, only(hello).number, only(hello).claims) == ("r2", 2, ())
    end = again.latest(hello, 10)
    assert only(end).claims[0].messages == 10 and world.state["readers"] == ["r2"]
    assert again.plan(hello, end)


def batch_of_lost_claim(world: World) -> tuple[Offset, Offset]:
    """Start and end of a first batch; its driver died, and its claim went back to the queue."""
    driver, start, end = first_batch(world, 10)
    assert driver.plan(start, end)
    world.broker.release_claims("q")
    assert world.state["ready"] == 10
    return start, end


def test_a_claim_lost_after_its_batch_was_committed_is_told_and_not_passed_over() -> None:
    # 200 rows for 100 messages: the settle passed over the lost number, the next claim took them.
    world = World()
    _, end = batch_of_lost_claim(world)
    with pytest.raises(
        ClaimLostError, match=r"is committed: .* a second time.*onClaimLost=continue"
    ):
        world.driver().latest(end, 10)
    assert (world.state["ready"], world.state["claims"]) == (10, {})


def test_who_goes_on_after_a_committed_batch_keeps_the_reader_and_its_numbers() -> None:
    world = World(onClaimLost="continue")
    _, end = batch_of_lost_claim(world)
    driver = world.driver()
    hello = driver.latest(end, 10)
    assert (only(hello).reader, only(hello).number, only(hello).claims) == (only(end).reader, 1, ())
    assert driver.plan(end, hello) == ()
    again = driver.latest(hello, 10)
    assert (only(again).number, only(again).claims[0].messages) == (2, 10)
    # The driver dies; the next one starts with the batch that was going on, or after it.
    assert world.driver().plan(hello, again)[0].last == 10
    assert world.driver().latest(again, 10) == again
    assert world.state["acknowledged"] == 10


def test_a_batch_that_was_begun_and_lost_its_claim_is_refused_or_empty() -> None:
    world = World()
    start, end = batch_of_lost_claim(world)
    with pytest.raises(ClaimLostError, match="unfinished batch"):
        world.driver().plan(start, end)
    driver = world.driver(onClaimLost="continue")
    assert driver.plan(start, end) == ()
    # That empty batch is committed; its messages come in the next one, once.
    hello = driver.latest(end, 10)
    again = driver.latest(hello, 10)
    assert driver.plan(hello, again)[0].last == 10
    driver.settle(again)
    assert (world.state["ready"], world.state["acknowledged"]) == (0, 10)


def test_a_reader_that_was_forgotten_is_told() -> None:
    world = World()
    world.publish(10)
    driver = world.driver()
    end = driver.latest(started(world, driver), 10)
    driver.settle(end)
    del world.broker.queues["q"].readers[only(end).reader]
    world.broker.queues["q"].floor = 2  # above what it had
    for _ in range(2):
        with pytest.raises(ClaimLostError, match="forgotten after long silence"):
            world.driver().latest(end, 10)
    assert only(end).reader not in world.state["readers"]
    assert only(world.driver(onClaimLost="continue").latest(end, 10)).reader == "r2"


@pytest.mark.parametrize("settled", [0, 2])
def test_a_checkpoint_that_broker_and_offset_disagree_on_is_lost(settled: int) -> None:
    world = World()
    world.publish(30)
    driver = world.driver()
    offsets = [started(world, driver)]
    for _ in range(3):
        offsets.append(driver.latest(offsets[-1], 10))
    assert world.state["settled"] == {"r1": 2}
    if settled == 0:  # the queue was declared again
        world.broker.declare("q")
        world.publish(5)
        with pytest.raises(ClaimLostError, match="the queue was declared again"):
            world.driver().latest(offsets[3], 10)
    else:  # an old copy of the checkpoint
        with pytest.raises(CheckpointBehindError, match="up to 1 as read, and those up to 2"):
            world.driver().latest(offsets[1], 10)


def test_an_older_copy_of_the_checkpoint_does_not_disturb_the_query_that_runs() -> None:
    world = World()
    world.publish(50)
    driver = world.driver()
    offsets = [started(world, driver)]
    for _ in range(3):
        offsets.append(driver.latest(offsets[-1], 10))
    epoch = world.broker.queues["q"].readers["r1"].epoch
    with pytest.raises(CheckpointBehindError, match="a query has gone on with a copy of it"):
        world.driver().latest(offsets[1], 10)
    with pytest.raises(CheckpointBehindError, match="up to 0 as read, and those up to 2"):
        world.driver().plan(offsets[0], offsets[1])
    assert world.broker.queues["q"].readers["r1"].epoch == epoch
    onward = world.driver(onClaimLost="continue")
    assert onward.plan(offsets[0], offsets[1]) == ()  # and this batch is committed, empty
    hello = onward.latest(offsets[1], 10)
    assert (only(hello).reader, only(hello).claims) == ("r2", ())
    assert only(onward.latest(hello, 10)).claims[0].messages == 10
    assert len(driver.plan(offsets[2], offsets[3])) == 1
    assert only(driver.latest(offsets[3], 10)).number == 4
    assert world.state["settled"] == {"r1": 3, "r2": 0}


def test_a_copy_that_is_not_behind_takes_over_and_reads_the_open_claim_too() -> None:
    world = World()
    world.publish(30)
    first = world.driver()
    start = started(world, first)
    one = first.latest(start, 10)
    copied = world.driver()
    assert copied.plan(start, one) == first.plan(start, one)
    two = copied.latest(one, 10)
    with pytest.raises(FencedError, match="the same checkpoint or readerId is in use twice"):
        first.latest(one, 10)
    copied.settle(two)
    with pytest.raises(CheckpointBehindError, match="up to 1 as read, and those up to 2"):
        world.driver().latest(one, 10)


def test_the_checkpoint_of_another_queue() -> None:
    world = World()
    world.broker.declare("p")
    driver = world.driver()
    start = started(world, driver)
    other = world.driver(queue="p")
    with pytest.raises(CheckpointError):
        other.latest(start, 10)
    with pytest.raises(CheckpointError):
        other.plan(start, start)


def test_the_backlog_is_answered_from_memory() -> None:
    world = World()
    world.publish(3)
    driver = world.driver()
    assert driver.backlog()["messages_ready"] == 3
    world.publish(3)
    assert driver.backlog()["messages_ready"] == 3
    world.now_ms += 1000
    assert driver.backlog()["messages_ready"] == 6


def test_the_backlog_of_an_idle_query_is_not_asked_for() -> None:
    world = World()
    world.publish(3)
    driver = world.driver()
    driver.backlog()
    end = driver.latest(started(world, driver), 10)
    assert driver.latest(end, 10) is end
    world.broker.queues.clear()  # asking would fail
    world.now_ms += 5000
    assert driver.backlog()["messages_ready"] == 0
