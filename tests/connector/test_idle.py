"""Idle sources: what they request of their queues, and what they learn without a request."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from spark_world.fake import quorum_queue
from spark_world.offsets import only

from connector.test_driver import World, started, with_messages
from connector.test_queues_driver import World as SeveralQueues
from connector.test_queues_driver import counts
from connector.test_queues_driver import started as all_started
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.errors import FencedError
from warren import errors as client_errors

# ------------------------------------------------------------------ one queue


def idle_one(world: World) -> tuple[ClaimDriver, Offset]:
    """Return a driver with a last claim request that found nothing, and where it stands."""
    driver = world.driver()
    start = started(world, driver)
    assert driver.latest(start, 10) is start
    world.broker.calls.clear()
    return driver, start


def test_an_idle_query_sent_a_claim_request_at_each_poll() -> None:
    world = World()
    driver, start = idle_one(world)
    while world.now_ms < 25_000:
        assert driver.latest(start, 10) is start
    assert not world.broker.calls
    world.publish(3)
    end = driver.latest(start, 10)
    assert only(end).claims[0].messages == 3
    assert driver.latest(end, 10) is end  # settles, and asks for a claim once
    assert [call[0] for call in world.broker.calls] == ["open", "settle", "open"]


def test_an_idle_reader_is_heard_of_at_least_each_minute() -> None:
    world = World()
    driver, start = idle_one(world)
    while world.now_ms < 300_000:
        assert driver.latest(start, 10) is start
    assert {call[0] for call in world.broker.calls} == {"renew"}
    assert 5 <= len(world.broker.calls) <= 10


@pytest.mark.parametrize("options", [{}, {"minMessagesPerTrigger": "5"}])
def test_an_idle_query_keeps_a_queue_with_x_expires_in_use(options: dict[str, str]) -> None:
    world = World(**options)
    world.broker.queues["q"].arguments["x-expires"] = 12_000
    driver = world.driver()
    start = started(world, driver)
    asked_ms = [0]
    while world.now_ms < 60_000:
        assert driver.latest(start, 10) is start
        if len(world.broker.calls_of("open")) >= len(asked_ms):
            asked_ms.append(world.now_ms)
    gaps = [after - before for before, after in pairwise(asked_ms)]
    assert len(gaps) >= 10 and max(gaps) < 12_000 / 2
    assert len(gaps) <= 60_000 / 4_000 + 1


def test_messages_below_the_minimum_do_not_expire_with_their_queue() -> None:
    world = World(minMessagesPerTrigger="5", maxTriggerDelay="1h")
    world.broker.queues["q"].arguments["x-expires"] = 12_000
    driver = world.driver()
    start = started(world, driver)
    world.publish(2)
    while world.now_ms < 3_500:
        assert driver.latest(start, 10) is start
    while (end := driver.latest(start, 10)) is start:
        assert world.now_ms < 12_000
    assert only(end).claims[0].messages == 2


def test_an_idle_driver_is_fenced() -> None:
    world = World()
    old, start = idle_one(world)
    assert world.driver().latest(start, 10) is start
    with pytest.raises(FencedError):
        old.latest(start, 10)


def test_an_idle_driver_is_told_that_its_reader_was_released() -> None:
    world = World()
    driver, start = idle_one(world)
    del world.broker.queues["q"].readers[only(start).reader]
    with pytest.raises(client_errors.PeerError, match="not registered"):
        driver.latest(start, 10)


def test_a_claim_that_an_idle_driver_does_not_know_of_is_its_next_batch() -> None:
    world = World()
    driver, start = idle_one(world)
    world.publish(3)
    claims = world.broker.queues["q"]
    claims.readers[only(start).reader].claims[1] = claims.ready  # its answer was lost
    claims.ready = []
    assert only(driver.latest(start, 10)).claims[0].messages == 3


def test_available_now_does_not_end_because_of_counts_that_are_a_moment_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = with_messages(5)
    driver = world.driver()
    driver.prepare_available_now()
    start = started(world, driver)
    monkeypatch.setattr(world.broker, "queue", lambda name: quorum_queue(name))
    assert only(driver.latest(start, 10)).claims[0].messages == 5


# ------------------------------------------------------------------ several queues


def idle_several(world: SeveralQueues) -> tuple[ClaimDriver, Offset]:
    """Return a driver that has found nothing, and where it stands."""
    driver = world.driver()
    start = all_started(driver)
    assert driver.latest(start, 10) is start
    world.broker.calls.clear()
    return driver, start


def test_an_idle_queue_among_several_expired() -> None:
    world = SeveralQueues("a", "b")
    world.broker.queues["b"].arguments["x-expires"] = 12_000
    driver, at = idle_several(world)
    used_ms = [0]
    while world.now_ms < 60_000:
        world.publish("a", 20)
        end = driver.latest(at, 10)
        assert counts(end) == {"a": 10 if len(world.broker.calls_of("open")) == 1 else 9}
        used_ms += [world.now_ms] * (len(world.broker.calls_of("open")) > 1)
        world.broker.calls.clear()
        world.now_ms += 1_000
        at = end
    gaps = [after - before for before, after in pairwise(used_ms)]
    assert len(gaps) >= 10 and max(gaps) < 12_000 / 2


def test_a_message_that_comes_with_an_owed_request_is_within_the_limit() -> None:
    world = SeveralQueues("a", "b")
    world.broker.queues["b"].arguments["x-expires"] = 12_000
    driver, start = idle_several(world)
    world.now_ms += 5_000
    world.publish("a", 20)
    step = driver._queues["b"].step

    def comes(*limits: Any) -> Any:
        world.publish("b", 20)  # after its counts were read
        return step(*limits)

    driver._queues["b"].step = comes  # type: ignore[method-assign]
    assert counts(driver.latest(start, 10)) == {"a": 9, "b": 1}


def test_several_idle_readers_are_heard_of_and_fenced() -> None:
    world = SeveralQueues("a", "b")
    driver, start = idle_several(world)
    while world.now_ms < 100_000:
        assert driver.latest(start, 10) is start
    assert {call[0] for call in world.broker.calls} == {"renew"}
    assert 4 <= len(world.broker.calls) <= 2 * 4
    world.driver().latest(start, 10)
    with pytest.raises(FencedError):
        driver.latest(start, 10)
