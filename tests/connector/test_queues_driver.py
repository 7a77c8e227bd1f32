"""The driver of several queues against the fake broker, call by call as Spark makes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark_world.fake import FakeBroker, FakeClient

from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.claims.plan import SLICE_MESSAGES, Slice, pack
from pyspark_warren.claims.selection import divide
from pyspark_warren.errors import (
    CheckpointBehindError,
    CheckpointError,
    ClaimLostError,
    FencedError,
    OptionError,
)
from pyspark_warren.options.options import parse_options
from pyspark_warren.options.reading import BACKLOG, FAIR
from pyspark_warren.surroundings import Surroundings
from warren import errors


class World:
    """A broker, drivers that come and go, and a clock that only moves when they sleep."""

    def __init__(self, *queues: str, **options: str) -> None:
        self.broker = FakeBroker()
        for name in queues:
            self.broker.declare(name)
        self.now_ms = 0
        self.minted = 0
        self.options = {"queuePattern": "^[a-z]$", "maxMessagesPerTrigger": "10", **options}
        if "queues" in options:
            del self.options["queuePattern"]

    def driver(self, **more: str) -> ClaimDriver:
        given = {**self.options, **more}
        if "queues" in more:
            given.pop("queuePattern", None)
        given = {name: value for name, value in given.items() if value}
        return ClaimDriver(
            FakeClient.local(self.broker),
            parse_options(given, "read"),
            Surroundings(lambda: self.now_ms, self.sleep, self.mint),
        )

    def sleep(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)

    def mint(self) -> str:
        self.minted += 1
        return f"r{self.minted}"

    def publish(self, queue: str, count: int) -> None:
        self.broker.publish(queue, [b"%s %d" % (queue.encode(), i) for i in range(count)])

    def acknowledged(self) -> dict[str, int]:
        return {name: state.acknowledged for name, state in self.broker.queues.items()}


def started(driver: ClaimDriver) -> Offset:
    """Pass the first batch, which is empty and has every queue."""
    hello = driver.latest(driver.initial(), 10)
    assert hello.registered and not any(each.claims for each in hello.queues.values())
    return hello


def counts(offset: Offset) -> dict[str, int]:
    """Messages of the batch by queue."""
    return {
        name: sum(claim.messages for claim in each.claims)
        for name, each in offset.queues.items()
        if each.claims
    }


def read(slices: tuple[Slice, ...]) -> dict[str, int]:
    """Messages of a plan by queue."""
    found: dict[str, int] = {}
    for part in slices:
        found[part.queue] = found.get(part.queue, 0) + part.last - part.first
    return found


# ------------------------------------------------------------------ batches


def test_a_batch_has_a_claim_of_each_queue_and_settles_them_together() -> None:
    world = World("a", "b", "c", "elsewhere")
    world.publish("a", 3)
    world.publish("b", 4)
    driver = world.driver()
    start = started(driver)
    end = driver.latest(start, 10)
    assert counts(end) == {"a": 3, "b": 4}
    slices = driver.plan(start, end)
    assert read(slices) == {"a": 3, "b": 4} and len(pack(slices)) == 1
    assert driver.latest(end, 10) is end
    assert world.acknowledged() == {"a": 3, "b": 4, "c": 0, "elsewhere": 0}


def test_a_queue_without_news_has_no_claim_in_the_next_batch() -> None:
    world = World("a", "b")
    world.publish("a", 3)
    driver = world.driver()
    one = driver.latest(started(driver), 10)
    world.publish("b", 2)
    two = driver.latest(one, 10)
    assert counts(two) == {"b": 2}
    assert read(driver.plan(one, two)) == {"b": 2}
    again = world.driver()  # the driver died in that batch
    assert read(again.plan(one, Offset.from_dict(two.to_dict()))) == {"b": 2}
    assert again.latest(two, 10) is two
    assert world.acknowledged() == {"a": 3, "b": 2}


def test_a_driver_that_died_between_two_claims_gets_the_same_ones() -> None:
    world = World("a", "b")
    world.publish("a", 3)
    world.publish("b", 4)
    driver = world.driver()
    start = started(driver)
    end = driver.latest(start, 10)
    for name in ("a", "b"):
        world.publish(name, 5)
    again = world.driver()
    assert again.latest(start, 10) == end
    third = world.driver()
    assert counts(third.latest(end, 10)) == {"a": 5, "b": 5}


def test_a_claim_that_only_the_broker_knows_is_found_though_nothing_is_ready() -> None:
    world = World("a", "b", minMessagesPerTrigger="10")
    world.publish("a", 10)
    driver = world.driver()
    start = started(driver)
    assert counts(driver.latest(start, 10)) == {"a": 10}  # and the driver dies
    assert counts(world.driver().latest(start, 10)) == {"a": 10}


def test_once_opens_the_claims_when_they_are_planned() -> None:
    world = World("a", "b")
    world.publish("a", 30)
    driver = world.driver()
    start = driver.initial()
    end = driver.latest(start, None)
    assert world.broker.state("a")["claims"] == {}
    assert read(driver.plan(start, end)) == {"a": 30}
    world.publish("b", 20)
    later = world.driver()
    again = later.latest(end, None)
    assert read(later.plan(end, again)) == {"b": 20}
    assert later.latest(again, None) is again
    assert world.acknowledged() == {"a": 30, "b": 20}


def test_available_now_ends_whatever_comes_and_joins() -> None:
    world = World("a", "b")
    world.publish("a", 25)
    world.publish("b", 5)
    driver = world.driver()
    driver.prepare_available_now()
    at = started(driver)
    got: dict[str, int] = {}
    for turn in range(20):
        world.publish("a", 7)
        world.broker.declare("klmnopq"[turn % 7])
        end = driver.latest(at, 10)
        if end is at:
            break
        for name, count in counts(end).items():
            got[name] = got.get(name, 0) + count
        at = end
    assert got == {"a": 25, "b": 5}
    assert world.acknowledged()["a"] == 25


def test_older_drivers_are_fenced_in_every_queue() -> None:
    world = World("a", "b")
    world.publish("a", 3)
    old = world.driver()
    end = old.latest(started(old), 10)
    world.driver().latest(end, 10)
    with pytest.raises(FencedError):
        old.latest(end, 10)
    world.publish("b", 3)
    with pytest.raises(FencedError):
        old.latest(end, 10)


def test_an_older_copy_is_refused_before_it_takes_over_in_any_queue() -> None:
    world = World("a", "b")
    world.publish("b", 30)
    running = world.driver()
    first = running.latest(started(running), 10)
    second = running.latest(first, 10)
    third = running.latest(second, 10)
    epochs = [state.readers["r1"].epoch for state in world.broker.queues.values()]
    for copied in (
        lambda: world.driver().latest(first, 10),
        lambda: world.driver().plan(started(world.driver()), first),
    ):
        with pytest.raises(CheckpointBehindError, match="queue 'b'"):
            copied()
    assert epochs == [state.readers["r1"].epoch for state in world.broker.queues.values()]
    world.publish("a", 1)
    assert counts(running.latest(third, 10)) == {"a": 1}


# ------------------------------------------------------------------ queues come and go


def test_a_queue_joins_before_anything_of_it_is_claimed() -> None:
    world = World("a")
    driver = world.driver()
    start = started(driver)
    world.broker.declare("b")
    world.publish("b", 4)
    joined = driver.latest(start, 10)
    assert counts(joined) == {} and set(joined.queues) == {"a", "b"}
    assert world.broker.state("b")["claims"] == {}
    assert counts(driver.latest(joined, 10)) == {"b": 4}


def test_a_checkpoint_of_one_queue_goes_on_with_several() -> None:
    world = World("a", "b", queuePattern="", queue="a")
    world.publish("a", 3)
    one = world.driver()
    start = started(one)
    end = one.latest(start, 10)
    begun = world.driver(queue="", queuePattern="^[a-z]$")
    assert read(begun.plan(start, end)) == {"a": 3}  # a batch that the query of one has begun
    world.publish("b", 2)
    joined = begun.latest(end, 10)
    assert world.acknowledged()["a"] == 3 and set(joined.queues) == {"a", "b"}
    assert counts(begun.latest(joined, 10)) == {"b": 2}


def test_a_checkpoint_of_several_queues_goes_on_with_one() -> None:
    world = World("a", "b")
    for name in ("a", "b"):
        world.publish(name, 3)
    driver = world.driver()
    start = started(driver)
    end = driver.latest(start, 10)
    one = world.driver(queuePattern="", queue="a")
    assert read(one.plan(start, end)) == {"a": 3, "b": 3}
    world.publish("a", 2)
    left = one.latest(end, 10)
    assert (counts(left), set(left.leaving)) == ({"a": 2}, {"b"})
    assert one.latest(left, 10) is left
    assert world.acknowledged() == {"a": 5, "b": 3}
    assert world.broker.state("b")["readers"] == []


def test_a_queue_no_longer_named_is_left_after_its_batch() -> None:
    world = World("a", "b", queues="a,b")
    for name in ("a", "b"):
        world.publish(name, 3)
    driver = world.driver()
    start = started(driver)
    end = driver.latest(start, 10)
    later = world.driver(queues="a")
    assert read(later.plan(start, end)) == {"a": 3, "b": 3}
    left = later.latest(end, 10)
    assert (set(left.queues), set(left.leaving)) == ({"a"}, {"b"})
    assert world.acknowledged() == {"a": 3, "b": 3}
    assert world.broker.state("b")["readers"] == ["r1"]  # until the checkpoint says that it leaves
    assert Offset.from_dict(left.to_dict()) == left
    assert later.latest(left, 10) is left and later.latest(left, 10) is left
    assert world.broker.state("b")["readers"] == []
    later.settle(end)  # Spark's commit comes late: the reader is not registered again
    assert world.broker.state("b")["readers"] == []


def test_leaving_gives_back_what_was_opened_and_not_used() -> None:
    world = World("a", "b", queues="a,b")
    world.publish("b", 3)
    driver = world.driver()
    start = started(driver)
    driver.latest(start, 10)  # opens b's claim; the driver dies before the offset log
    left = world.driver(queues="a").latest(start, 10)
    assert counts(world.driver().latest(start, 10)) == {"b": 3}  # that was not logged either
    world.driver(queues="a").latest(left, 10)
    assert world.broker.state("b")["ready"] == 3
    again = world.driver()
    joined = again.latest(left, 10)
    assert joined.leaving == {}
    assert counts(again.latest(joined, 10)) == {"b": 3}


def test_a_deleted_queue_of_a_pattern_leaves_and_comes_back() -> None:
    world = World("a", "b")
    world.publish("b", 3)
    driver = world.driver()
    one = driver.latest(started(driver), 10)
    del world.broker.queues["b"]
    two = driver.latest(one, 10)
    assert set(two.queues) == {"a"}
    driver.settle(one)
    world.broker.declare("b")
    world.publish("b", 2)
    three = driver.latest(two, 10)
    assert counts(driver.latest(three, 10)) == {"b": 2}


def test_a_deleted_queue_that_was_named_is_an_error() -> None:
    world = World("a", "b", queues="a,b")
    driver = world.driver()
    start = started(driver)
    del world.broker.queues["b"]
    with pytest.raises(errors.NotFound):
        driver.latest(start, 10)
    with pytest.raises(errors.NotFound):
        world.driver().latest(world.driver().initial(), 10)


def test_rows_of_a_begun_batch_that_went_with_their_queue_are_told() -> None:
    world = World("a", "b")
    for name in ("a", "b"):
        world.publish(name, 3)
    driver = world.driver()
    start = started(driver)
    end = driver.latest(start, 10)
    del world.broker.queues["b"]
    with pytest.raises(ClaimLostError, match="no queue 'b'"):
        world.driver().plan(start, end)
    later = world.driver(onClaimLost="continue")
    assert read(later.plan(start, end)) == {"a": 3}
    assert set(later.latest(end, 10).queues) == {"a"}


def test_one_queue_that_lost_its_claim_does_not_stop_the_others() -> None:
    world = World("a", "b", onClaimLost="continue")
    for name in ("a", "b"):
        world.publish(name, 3)
    driver = world.driver()
    end = driver.latest(started(driver), 10)
    world.broker.release_claims("b")
    told = driver.latest(end, 10)
    assert told.queues["b"].claims == () and world.acknowledged() == {"a": 3, "b": 0}
    assert counts(driver.latest(told, 10)) == {"b": 3}


def test_a_lost_claim_of_one_queue_fails_the_query() -> None:
    world = World("a", "b")
    for name in ("a", "b"):
        world.publish(name, 3)
    driver = world.driver()
    end = driver.latest(started(driver), 10)
    world.broker.release_claims("b")
    with pytest.raises(ClaimLostError, match="queue 'b'.*is committed"):
        world.driver().latest(end, 10)


def test_the_checkpoint_of_other_queues_or_another_vhost_is_refused() -> None:
    world = World("a", "b", "c")
    driver = world.driver(queues="a")
    end = started(driver)
    for more, told in (({"queues": "b,c"}, "none of those"), ({"vhost": "v"}, "is of vhost '/'")):
        with pytest.raises(CheckpointError, match=told):
            world.driver(**more).latest(end, 10)


def test_more_queues_than_the_limit_are_refused() -> None:
    world = World(queuePattern="^many")
    for i in range(1025):
        world.broker.declare(f"many-{i}")
    with pytest.raises(OptionError, match=r"1025 queues, 1024 is the limit"):
        world.driver().latest(world.driver().initial(), 10)


def test_an_idle_query_opens_nothing() -> None:
    world = World("a", "b")
    driver = world.driver()
    start = started(driver)
    for _ in range(5):
        assert driver.latest(start, 10) is start
    assert world.broker.calls_of("open") == []
    assert world.now_ms >= 1500
    assert driver.backlog()["queues"] == {"a": 0, "b": 0}


# ------------------------------------------------------------------ shares


def test_a_full_queue_does_not_starve_the_others() -> None:
    world = World("a", "b", "c")
    for name, count in (("a", 1000), ("b", 2), ("c", 50)):
        world.publish(name, count)
    fair = world.driver()
    assert counts(fair.latest(started(fair), 10)) == {"a": 4, "b": 2, "c": 4}


def test_limits_in_proportion_to_the_backlog() -> None:
    world = World("a", "b", "c", queueSharing="backlog", maxMessagesPerTrigger="100")
    for name, count in (("a", 900), ("b", 100), ("c", 1)):
        world.publish(name, count)
    driver = world.driver()
    assert counts(driver.latest(started(driver), 100)) == {"a": 89, "b": 10, "c": 1}


def test_more_queues_than_messages_take_turns() -> None:
    names = "abcdefghij"
    world = World(*names)
    for name in names:
        world.publish(name, 2)
    driver = world.driver()
    at, turns = started(driver), []
    while (end := driver.latest(at, 4)) is not at:
        turns.append("".join(sorted(counts(end))))
        at = end
    assert turns == ["abcd", "efgh", "abij", "cdef", "ghij"]


sizes = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 10_000), min_size=1)


@given(st.integers(1, 20_000), sizes, st.sampled_from((FAIR, BACKLOG)))
def test_shares_use_the_limit_and_give_nobody_more_than_he_has(
    total: int, ready: dict[str, int], sharing: str
) -> None:
    shares = divide(total, ready, list(ready), sharing)
    assert sum(shares.values()) == min(total, sum(ready.values()))
    assert all(1 <= shares[name] <= ready[name] for name in shares)
    waiting = [name for name in ready if ready[name]]
    assert len(shares) == min(total, len(waiting))
    if sharing == FAIR:
        cut_short = [shares[name] for name in shares if shares[name] < ready[name]]
        assert not cut_short or max(cut_short) - min(cut_short) <= 1
        assert not cut_short or max(shares.values()) <= max(cut_short)


@given(st.lists(st.integers(1, 2 * SLICE_MESSAGES), max_size=40))
def test_small_slices_share_a_task(lengths: list[int]) -> None:
    slices = [Slice(str(i), "r", 1, 0, length) for i, length in enumerate(lengths)]
    tasks = pack(slices)
    assert [part for task in tasks for part in task] == slices
    for task in tasks:
        assert len(task) == 1 or sum(part.last for part in task) <= SLICE_MESSAGES


def test_a_new_checkpoint_of_a_named_reader_ends_what_it_continued_as() -> None:
    world = World("a", "b", readerId="nightly")
    world.publish("a", 4)
    world.broker.register("a", "nightly+r7")
    world.broker.open("a", "nightly+r7", world.broker.queues["a"].epoch, 1, 10, 1 << 20)
    driver = world.driver()
    hello = started(driver)
    assert world.broker.state("a")["readers"] == ["nightly"]
    assert counts(driver.latest(hello, 10)) == {"a": 4}


def test_once_left_the_claim_of_an_earlier_checkpoint_where_nothing_else_was_ready() -> None:
    world = World("a", readerId="nightly")
    world.publish("a", 4)
    before = world.driver()
    hello = started(before)
    assert counts(before.latest(hello, 10)) == {"a": 4}
    driver = world.driver()  # with a new checkpoint
    start = driver.initial()
    end = driver.latest(start, None)
    assert sum(part.last for part in driver.plan(start, end)) == 4
