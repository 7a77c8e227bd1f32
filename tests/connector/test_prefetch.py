"""Claims that are opened while Spark works on a batch: what the driver asks for, and gives back."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from spark_world import fake
from spark_world.fake import FakeClient
from spark_world.fake_reader import FakeReader
from spark_world.offsets import only, standing

from connector.test_driver import World, started
from pyspark_warren.claims import ahead as claim_ahead
from pyspark_warren.claims.ahead import BATCH_MS_MAX, prefetches
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.offset import Offset
from pyspark_warren.errors import ClaimLostError, FencedError, TokenError
from pyspark_warren.options.options import parse_options
from pyspark_warren.surroundings import Surroundings
from tests.patience import PATIENCE_S
from warren import errors
from warren.claims import Claim


class AheadWorld(World):
    """What is done beside Spark's calls is done when the test says so."""

    def __init__(self, published: int = 0, **options: str) -> None:
        super().__init__(**{"prefetchClaims": "1", **options})
        self.work: list[Callable[[], None]] = []
        if published:
            self.publish(published)

    def driver(self, **more: str) -> ClaimDriver:
        options = parse_options({**self.options, **more}, "read")
        assert prefetches(options)
        return ClaimDriver(
            FakeClient.local(self.broker),
            options,
            Surroundings(lambda: self.now_ms, self.sleep, self.mint, self.beside),
        )

    def beside(self, work: Callable[[], None]) -> None:
        self.work.append(work)

    def ask(self, driver: ClaimDriver) -> None:
        """Make the request ahead."""
        (_,) = self.work
        self.work.clear()
        assert driver.ahead is not None and driver.ahead.request is not None
        driver.ahead.request.ask()

    def claims(self) -> dict[int, int]:
        return self.state["claims"].get("r1", {})

    def calls(self) -> list[tuple[Any, ...]]:
        """Requests about claims since the last look."""
        found = [(kind, *more) for kind, _, *more in self.broker.calls if kind != "fetch"]
        self.broker.calls.clear()
        return found


def second_batch(world: AheadWorld) -> tuple[ClaimDriver, Offset]:
    """A driver in its second batch with rows, after which it knows how long a batch takes."""
    driver = world.driver()
    first = driver.latest(started(world, driver), 10)
    assert not world.work, "how long batches take is not known yet"
    driver.plan(standing("r1"), first)
    world.now_ms += 150
    second = driver.latest(first, 10)
    assert only(second).number == 2
    driver.settle(first)
    world.calls()
    return driver, second


def test_the_next_claim_is_opened_beside_the_batch_and_costs_the_next_call_no_request() -> None:
    world = AheadWorld(60)
    driver, at = second_batch(world)
    for number in range(3, 6):
        start = at
        world.ask(driver)
        assert world.claims() == {only(at).number: 10, number: 10}
        world.calls()
        at = driver.latest(start, 10)
        assert (only(at).number, only(at).claims[0].messages) == (number, 10)
        driver.plan(start, at)
        driver.settle(start)  # commit(end): a request that settles it is under way
        assert world.calls() == []
    assert world.state["acknowledged"] == 30, "the batch before is settled with the next request"
    world.ask(driver)
    assert world.state["acknowledged"] == 40
    assert world.claims() == {5: 10, 6: 10}
    at = driver.latest(at, 10)
    world.ask(driver)
    assert (world.claims(), world.calls()[-2:]) == ({6: 10}, [("settle", 5), ("open", 7)])
    assert driver.latest(at, 10) is at
    assert world.state["acknowledged"] == 60 and not world.claims()


def test_a_claim_that_would_not_be_full_is_opened_with_all_that_came_meanwhile() -> None:
    world = AheadWorld(25)
    driver, at = second_batch(world)
    world.ask(driver)
    assert world.claims() == {2: 10} and world.state["ready"] == 5
    world.publish(4)
    at = driver.latest(at, 10)
    assert only(at).claims[0].messages == 9
    assert not world.work, "the queue was empty: nothing is asked ahead"


def test_an_idle_query_asks_for_nothing_ahead_and_holds_nothing() -> None:
    world = AheadWorld(20)
    driver, at = second_batch(world)
    world.ask(driver)
    for _ in range(5):
        assert driver.latest(at, 10) is at
    assert not world.work and not world.claims() and world.state["acknowledged"] == 20


def test_after_a_long_batch_nothing_is_opened_ahead() -> None:
    world = AheadWorld(60)
    driver, at = second_batch(world)
    world.ask(driver)
    world.now_ms += BATCH_MS_MAX + 1
    at = driver.latest(at, 10)
    assert only(at).number == 3, "what was opened is used"
    world.ask(driver)
    assert world.claims() == {3: 10}, "the batch before it is settled, no more"
    world.now_ms += 100
    at = driver.latest(at, 10)
    world.ask(driver)
    assert world.claims() == {4: 10, 5: 10}


@pytest.mark.parametrize(
    "options",
    [
        {"prefetchClaims": "0"},
        {"targetBatchDuration": "1s"},
        {"onBatchFailure": "release"},
        {"queue": "", "queues": "q,r"},
    ],
)
def test_where_the_next_batch_depends_on_this_one_nothing_is_opened_ahead(
    options: dict[str, str],
) -> None:
    given = {name: value for name, value in {"queue": "q", **options}.items() if value}
    assert not prefetches(parse_options(given, "read"))


def test_available_now_ends_with_everything_settled_and_nothing_ahead() -> None:
    world = AheadWorld(45)
    driver = world.driver()
    driver.prepare_available_now()
    at = started(world, driver)
    read = 0
    while (end := driver.latest(at, 10)) != at:
        world.publish(10)
        read += only(end).claims[0].messages
        world.now_ms += 10
        for work in world.work:
            threading.Thread(target=work, daemon=True).start()
        world.work.clear()
        at = end
    assert read == 45 and world.state["acknowledged"] == 45 and not world.claims()


# ------------------------------------------------------------------ given back


def test_a_claim_that_spark_does_not_ask_for_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_ahead, "HELD_S_MAX", 0.01)
    world = AheadWorld(40)
    driver, at = second_batch(world)
    (run,) = world.work
    run()
    assert world.claims() == {2: 10, 3: 0} and world.state["ready"] == 20
    assert world.broker.bodies("q")[0] == b"20", "in their order"
    world.work.clear()
    empty = driver.latest(at, 10)
    assert (only(empty).number, only(empty).claims[0].messages) == (3, 0)
    assert driver.plan(at, empty) == ()
    after = driver.latest(empty, 10)
    assert (only(after).number, only(after).claims[0].messages) == (4, 10)
    assert world.state["acknowledged"] == 20


def test_a_query_that_stops_gives_back_what_is_ahead_and_no_more() -> None:
    world = AheadWorld(40)
    driver, at = second_batch(world)
    world.ask(driver)
    driver.close()
    assert world.claims() == {2: 10, 3: 0} and world.state["ready"] == 20
    driver.close()
    again = world.driver(prefetchClaims="1")
    empty = again.latest(at, 10)
    assert (only(empty).number, only(empty).claims[0].messages) == (3, 0)
    assert only(again.latest(empty, 10)).claims[0].messages == 10


def test_what_spark_has_asked_for_is_not_given_back() -> None:
    world = AheadWorld(40)
    driver, at = second_batch(world)
    world.ask(driver)
    assert driver.ahead is not None
    ahead = driver.ahead.request
    assert ahead is not None and only(driver.latest(at, 10)).number == 3
    ahead.give_back()
    assert world.claims() == {2: 10, 3: 10}


class NoAnswer(FakeReader):
    """A reader with requests to withdraw that are not answered at first."""

    unanswered = 1
    failure: errors.WarrenError

    def withdraw(self, number: int) -> int:
        if NoAnswer.unanswered:
            NoAnswer.unanswered -= 1
            raise self.failure
        return super().withdraw(number)


@pytest.mark.parametrize(
    "failure", [errors.Unavailable("no majority"), errors.AccessRefused("no right to read")]
)
def test_a_claim_that_may_be_given_back_yet_is_not_used(
    monkeypatch: pytest.MonkeyPatch, failure: errors.WarrenError
) -> None:
    """A refused login is no answer either: the request before it may be delayed on its way."""
    monkeypatch.setattr(fake, "FakeReader", NoAnswer)
    monkeypatch.setattr(NoAnswer, "unanswered", 2)
    monkeypatch.setattr(NoAnswer, "failure", failure, raising=False)
    world = AheadWorld(40)
    driver, at = second_batch(world)
    world.ask(driver)
    assert driver.ahead is not None and driver.ahead.request is not None
    driver.ahead.request.give_back()
    assert world.claims() == {2: 10, 3: 10}, "it may be emptied at any time"
    with pytest.raises(type(failure)):
        driver.latest(at, 10)
    assert only(driver.latest(at, 10)).claims[0].messages == 0
    assert world.claims() == {3: 0}


class NoLogin(FakeReader):
    """A reader with a connection that was lost, and no token for the next one at first."""

    refusals = 2

    def _login(self) -> None:
        if NoLogin.refusals:
            NoLogin.refusals -= 1
            raise TokenError("the endpoint refuses the client")

    def open_ahead(self, number: int, *, settles: int, **limits: Any) -> tuple[int, Claim | None]:
        self._login()
        return super().open_ahead(number, settles=settles, **limits)

    def withdraw(self, number: int) -> int:
        self._login()
        return super().withdraw(number)


def test_a_login_that_fails_ends_no_thread_and_no_batch_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fake, "FakeReader", NoLogin)
    monkeypatch.setattr(NoLogin, "refusals", 1)
    monkeypatch.setattr(claim_ahead, "HELD_S_MAX", 0.01)
    world = AheadWorld(60)
    driver, at = second_batch(world)
    (run,) = world.work
    world.work.clear()
    run()  # in a thread of its own: nothing takes what it raises
    at = driver.latest(at, 10)
    assert (only(at).number, only(at).claims[0].messages) == (3, 10), "it is asked again"
    world.ask(driver)
    monkeypatch.setattr(NoLogin, "refusals", 1)
    driver.close()
    assert world.claims() == {3: 10, 4: 10}, "it may be emptied at any time"
    assert only(driver.latest(at, 10)).claims[0].messages == 0
    assert world.claims() == {4: 0}


def test_the_next_batch_waits_for_the_request_that_is_under_way() -> None:
    world = AheadWorld(40)
    driver, at = second_batch(world)
    (run,) = world.work
    timer = threading.Timer(0.05, run)
    timer.start()
    end = driver.latest(at, 10)
    assert (only(end).number, only(end).claims[0].messages) == (3, 10)
    timer.join(PATIENCE_S)


# ------------------------------------------------------------------ crashes


@pytest.mark.parametrize("prefetch", ["0", "1"])
def test_a_driver_that_died_with_a_claim_ahead_leaves_it_to_the_next_one(prefetch: str) -> None:
    world = AheadWorld(40)
    driver, at = second_batch(world)
    world.ask(driver)
    assert driver.ahead is not None
    ahead = driver.ahead.request
    assert ahead is not None
    options = parse_options({**world.options, "prefetchClaims": prefetch}, "read")
    around = Surroundings(lambda: world.now_ms, world.sleep, world.mint, world.beside)
    again = ClaimDriver(FakeClient.local(world.broker), options, around)
    slices = again.plan(standing("r1", 1), at)
    assert [(part.number, part.first, part.last) for part in slices] == [(2, 0, 10)]
    world.publish(100)
    end = again.latest(at, 3)
    assert (only(end).number, only(end).claims[0].messages) == (3, 10), (
        "as it was, whatever the limit is now"
    )
    assert only(again.latest(end, 3)).claims[0].messages == 3
    ahead.give_back()  # the first one still runs: it is fenced
    assert world.claims() == {4: 3}


def test_a_batch_was_committed_before_the_one_before_it_was_settled() -> None:
    world = AheadWorld(60)
    driver, at = second_batch(world)
    world.ask(driver)
    third = driver.latest(at, 10)  # its request to settle 2 is never sent
    again = world.driver()
    end = again.latest(third, 10)
    assert (only(end).number, only(end).claims[0].messages) == (4, 10)
    assert world.state["acknowledged"] == 30 and world.claims() == {4: 10}


def test_a_lost_claim_of_a_committed_batch_is_told_a_batch_later() -> None:
    world = AheadWorld(60)
    driver, at = second_batch(world)
    world.ask(driver)
    third = driver.latest(at, 10)
    world.broker.release_claims("q")
    world.ask(driver)
    with pytest.raises(ClaimLostError, match="second time"):
        driver.latest(third, 10)


def test_a_driver_that_was_taken_over_from_is_told() -> None:
    world = AheadWorld(60)
    driver, at = second_batch(world)
    other = world.driver()
    other.plan(standing("r1", 1), at)
    world.ask(driver)
    with pytest.raises(FencedError):
        driver.latest(at, 10)


def test_a_claim_whose_later_one_is_open_was_lost() -> None:
    world = AheadWorld(60)
    driver, at = second_batch(world)
    world.ask(driver)
    state = world.broker.queues["q"].readers["r1"]
    state.lost.add(2)
    world.broker.queues["q"].give_back(state.claims.pop(2))
    with pytest.raises(ClaimLostError):
        world.driver().plan(standing("r1", 1), at)
