"""Option readerId: a reader with a name of the user's, over checkpoints."""

from __future__ import annotations

import uuid

import pytest
from spark_world.fake import FakeClient, ReaderState
from spark_world.offsets import only, standing

from connector.test_driver import World, first_batch
from connector.test_real_broker import channel_of, driver_of, options
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
from warren.admin import Admin
from warren.local import LocalCluster


def test_reader_id_beside_the_checkpoint_of_another_reader_was_ignored() -> None:
    world = World()
    _driver, start, end = first_batch(world, 25)
    named = world.driver(readerId="nightly")
    for call in (lambda: named.latest(end, 10), lambda: named.plan(start, end)):
        with pytest.raises(CheckpointError, match="of reader 'r1', the option readerId says 'ni"):
            call()
    assert world.state["readers"] == ["r1"]


def begun(driver: ClaimDriver) -> Offset:
    """Pass the first batch, which puts the name into the checkpoint; return its end."""
    end = driver.latest(driver.initial(), 10)
    assert end.registered and not only(end).claims
    assert driver.plan(driver.initial(), end) == ()
    return end


def test_a_named_reader_that_lost_its_claim_goes_on_with_its_checkpoint() -> None:
    world = World(readerId="nightly", onClaimLost="continue")
    world.publish(25)
    driver = world.driver()
    start = begun(driver)
    lost = driver.latest(start, 10)
    world.broker.release_claims("q")
    again = world.driver()
    hello = again.latest(start, 10)
    assert (only(hello).reader, only(hello).claims) == ("nightly", ())
    assert again.plan(start, hello) == ()
    assert only(world.driver().latest(hello, 10)).claims[0].messages == 10
    with pytest.raises(CheckpointBehindError):  # the numbers are above those that were lost
        world.driver(onClaimLost="fail").latest(lost, 10)


def test_the_checkpoints_first_offset_was_taken_for_the_drivers_own() -> None:
    """A driver asks where to begin, which is what the checkpoint has, and the reader is forgotten:
    it went on without a word, with a batch that has a gap."""
    world = World(readerId="mine", onClaimLost="continue")
    world.publish(10)
    written = begun(world.driver())
    two = world.driver()
    initial = two.initial()  # its batch 0 is in the log, and not committed
    assert two.plan(initial, written) == ()
    gone = FakeClient.local(world.broker).reader("q", "mine")
    gone.register()
    gone.release()
    end = two.latest(written, 10)
    assert two.plan(written, end) == ()
    assert until_idle(world, end) == 10


def until_idle(world: World, start: Offset) -> int:
    """Run a query from there, each batch in a run of its own; return the rows."""
    rows = 0
    for _ in range(10):
        driver = world.driver()
        end = driver.latest(start, 10)
        if end == start:
            return rows
        rows += sum(part.last - part.first for part in world.driver().plan(start, end))
        start = end
    raise AssertionError("it does not end")


def test_two_drivers_of_an_empty_checkpoint_left_a_claim_to_an_operator() -> None:
    """The claim of the one that did not write the offset log: no checkpoint named it."""
    world = World(readerId="mine", onClaimLost="continue")
    world.publish(10)
    one, two = world.driver(), world.driver()
    written = one.latest(one.initial(), 10)
    two.latest(two.initial(), 10)  # its offset log is refused, and it ends
    assert world.state["claims"] == {}
    assert until_idle(world, written) == 10
    assert (world.state["claims"], world.state["acknowledged"]) == ({}, 10)


def test_a_driver_that_lost_its_claim_continues_under_its_own_name() -> None:
    """Under another one it left to an operator what a driver beside it had opened meanwhile."""
    world = World(readerId="mine", onClaimLost="continue")
    world.publish(10)
    start = begun(world.driver())
    world.driver().latest(start, 10)  # it ends before its offset log
    world.broker.release_claims("q")
    one, two = world.driver(), world.driver()
    written = one.latest(start, 10)
    assert (only(written).reader, only(written).claims) == ("mine", ())
    two.latest(two.initial(), 10)  # it began before the checkpoint had its first offset
    assert until_idle(world, written) == 10
    assert (world.state["claims"], world.state["acknowledged"]) == ({}, 10)


def test_a_driver_that_lost_its_claim_is_told_that_another_one_has_taken_over() -> None:
    """It went on under another name, as if its reader did not exist."""
    world = World(onClaimLost="continue")
    driver, _start, end = first_batch(world, 25)
    after = driver.latest(end, 10)
    world.broker.release_claims("q")

    def call(name: str, *args: object) -> object:
        try:
            return getattr(world.broker, name)(*args)
        except client_errors.ClaimLost:
            world.broker.register("q", "r1")
            raise

    again = ClaimDriver(
        FakeClient(call),
        parse_options(world.options, "read"),
        Surroundings(lambda: 0, lambda _: None, world.mint),
    )
    assert only(after).number == 2
    with pytest.raises(FencedError):
        again.latest(end, 10)
    assert world.state["readers"] == ["r1"]


def first_batch_of_a_named_reader(world: World) -> Offset:
    """The end of the first batch as earlier connectors wrote it: with a claim.

    Its driver died in it.
    """
    world.publish(10)
    driver = world.driver()
    end = driver.latest(begun(driver), 10)
    assert driver.plan(driver.initial(), end)
    return end


def test_the_first_batch_of_a_named_reader_that_lost_its_claim_is_refused_or_empty() -> None:
    # Its tasks failed at every start, for ever: onClaimLost=continue was not asked.
    world = World(readerId="mine")
    end = first_batch_of_a_named_reader(world)
    world.broker.release_claims("q")
    driver = world.driver()
    with pytest.raises(ClaimLostError, match="unfinished batch"):
        driver.plan(driver.initial(), end)
    driver = world.driver(onClaimLost="continue")
    assert driver.plan(driver.initial(), end) == ()
    hello = driver.latest(end, 10)
    assert driver.plan(hello, driver.latest(hello, 10))[0].last == 10


def test_a_first_batch_that_another_driver_of_the_name_has_settled_is_told() -> None:
    world = World(readerId="mine")
    end = first_batch_of_a_named_reader(world)
    world.driver().latest(end, 10)
    driver = world.driver()
    with pytest.raises(CheckpointBehindError):
        driver.plan(driver.initial(), end)


def test_an_old_checkpoint_in_its_first_batch_fenced_the_query_that_has_its_reader_now() -> None:
    world = World(readerId="mine")
    end = first_batch_of_a_named_reader(world)
    healthy = world.driver()  # a new checkpoint
    first = healthy.latest(begun(healthy), 10)
    assert healthy.latest(first, 10) is first and world.state["acknowledged"] == 10
    stale = world.driver()
    with pytest.raises(CheckpointBehindError):
        stale.plan(stale.initial(), end)
    world.publish(3)
    assert only(healthy.latest(first, 10)).claims[0].messages == 3


def test_a_new_checkpoint_takes_over_from_a_query_that_settles_meanwhile() -> None:
    """Spark asks where to begin; the other query settles its batch, and is fenced then."""
    world = World(readerId="mine")
    world.publish(25)
    other = world.driver()
    first = other.latest(begun(other), 10)
    new = world.driver()
    start = new.initial()
    second = other.latest(first, 10)
    hello = new.latest(start, 10)
    end = new.latest(hello, 10)
    assert (start.queues, only(hello).number, only(end).number, only(end).claims) == (
        {},
        1,
        2,
        only(second).claims,
    )
    with pytest.raises(FencedError):
        other.latest(second, 10)
    (part,) = new.plan(hello, end)
    assert (part.number, part.first, part.last) == (2, 0, 10)
    assert only(new.latest(end, 10)).claims[0].messages == 5
    again = world.driver()  # it dies in its first batch
    with pytest.raises(CheckpointBehindError):
        again.plan(again.initial(), end)


def test_a_named_reader_without_messages_stays_where_it_began() -> None:
    world = World(readerId="mine")
    driver = world.driver()
    start = begun(driver)
    for _ in range(3):
        assert driver.latest(start, 10) is start
    world.publish(2)
    assert only(driver.latest(start, 10)).claims[0].messages == 2


def test_a_first_batch_at_a_queue_that_came_back_from_elsewhere_failed_without_a_remedy() -> None:
    """A query with readerId ended in its first batch, claim 6; the queue does not know the reader.

    The driver failed at every start with WARREN_CHECKPOINT, whatever onClaimLost said.
    """
    world = World(readerId="mine")
    world.broker.queues["q"].floor = 5
    end = first_batch_of_a_named_reader(world)
    assert only(end).number == 6
    world.broker.declare("q")
    world.publish(3)
    driver = world.driver()
    with pytest.raises(ClaimLostError, match="which the queue does not know"):
        driver.plan(driver.initial(), end)
    driver = world.driver(onClaimLost="continue")
    assert driver.plan(driver.initial(), end) == ()
    hello = driver.latest(end, 10)
    after = driver.latest(hello, 10)
    assert (only(hello).reader, only(hello).claims, only(after).claims[0].messages) == (
        "mine",
        (),
        3,
    )


def test_a_claim_of_another_batch_is_not_taken_for_the_first_ones() -> None:
    """The queue has come back, and another driver of the name has claims 1 and 2 open in it."""
    world = World(readerId="mine")
    world.broker.queues["q"].floor = 1
    end = first_batch_of_a_named_reader(world)
    assert only(end).number == 2
    world.broker.declare("q")
    world.publish(20)
    queue = world.broker.queues["q"]
    queue.readers["mine"] = ReaderState(1, 0, {1: queue.ready[:10], 2: queue.ready[10:]})
    queue.ready, queue.epoch = [], 1
    driver = world.driver()
    with pytest.raises(ClaimLostError, match="unfinished batch"):
        driver.plan(driver.initial(), end)


def test_a_named_reader_goes_on_without_a_checkpoint() -> None:
    world = World(readerId="nightly")
    world.publish(25)
    driver = world.driver()
    one = driver.latest(begun(driver), 10)
    driver.latest(one, 10)
    again = world.driver()
    start = begun(again)
    assert (only(start).reader, only(start).number) == ("nightly", 1)
    assert only(again.latest(start, 10)).claims[0].messages == 10
    assert world.state["claims"] == {"nightly": {2: 10}}


def test_a_new_checkpoint_left_what_its_reader_held_under_another_name_to_nobody() -> None:
    """With readerId it continues under a name of its own after a loss; a new checkpoint does not
    know that name, and its claim stayed until an operator released it."""
    world = World(readerId="nightly", onClaimLost="continue")
    world.publish(10)
    driver = world.driver()
    end = driver.latest(begun(driver), 10)
    driver.latest(end, 10)
    world.broker.queues["q"].readers["nightly"].settled = 5  # as if another driver had gone on
    lost = world.driver().latest(end, 10)
    world.publish(4)
    old = world.driver()
    held = old.latest(lost, 10)
    assert (only(held).reader, only(held).claims[0].messages) == ("nightly+r1", 4)
    world.publish(3)

    new = world.driver()  # a new checkpoint
    begin = begun(new)
    first = new.latest(begin, 10)
    assert (only(first).reader, only(first).claims[0].messages) == ("nightly", 7)
    assert list(world.state["claims"]) == ["nightly"]
    with pytest.raises((FencedError, client_errors.PeerError)):
        old.settle(held)
    again = world.driver()  # it ended before its offset log
    assert again.latest(begun(again), 10) == first


def test_a_restart_of_a_continued_query_keeps_its_claim() -> None:
    world = World(readerId="nightly", onClaimLost="continue")
    world.publish(10)
    driver = world.driver()
    hello = standing("nightly+r9", 0)
    end = driver.latest(hello, 10)
    assert only(end).claims[0].messages == 10
    restarted = world.driver()
    initial = restarted.initial()  # Spark asks for it: the query has ended in its first batch
    assert restarted.plan(initial, end)
    assert restarted.latest(end, 10) is end
    assert world.state["acknowledged"] == 10


@pytest.mark.live
@pytest.mark.slow
def test_a_new_checkpoint_of_a_named_reader_ends_what_it_continued_as(
    cluster: LocalCluster,
) -> None:
    """An operator releases its claim, and it continues; then it begins again."""
    queue = f"q-{uuid.uuid4().hex[:8]}"
    with cluster.connect() as connection:
        Admin(connection).queues.declare(queue, arguments={"x-queue-type": "quorum"})
    channel = channel_of(cluster)
    given = options(cluster, queue=queue, readerId="nightly", onClaimLost="continue")
    channel.basic_publish("", queue, b"one")
    first = driver_of(given)
    end = first.latest(begun(first), 10)
    with cluster.connect() as connection:
        Admin(connection).claims.release(queue, "nightly")
    old = driver_of(given)
    elsewhere = old.latest(end, 10)
    held = old.latest(elsewhere, 10)
    assert only(held).reader.startswith("nightly") and only(held).claims[0].messages == 1
    new = driver_of(given)
    after = new.latest(begun(new), 10)
    assert (only(after).reader, only(after).claims[0].messages) == ("nightly", 1)
    with cluster.connect() as connection:
        readers = [each.name for each in Admin(connection).queues.get(queue).readers]
    assert readers == ["nightly"]
