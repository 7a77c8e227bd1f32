"""A consumer that comes and goes with the demand, at a source that is slow to answer."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.transfers.shovel.source_consumer import SourceConsumer
from warren_wire.relay_names import ARGUMENT


class Source:
    """A broker behind pika's channel, which keeps a request back until the one before is answered.

    consumers  tags that the broker gives messages to
    empty      how often the last consumer has ended, which deletes an auto-delete queue
    """

    def __init__(self, exclusive: bool = False) -> None:
        self.consumers: list[str] = []
        self.empty = 0
        self._exclusive = exclusive
        self.prefetch = 0
        self.rejected: list[str] = []
        self._consumers: dict[str, Callable[..., None]] = {}
        self._cancelled: set[str] = set()
        self._kept: deque[Callable[[], Callable[[], None]]] = deque()
        self._answers: deque[Callable[[], None]] = deque()
        self._deliveries = 0

    # ------------------------------------------------------------ what pika's channel has

    def basic_consume(
        self,
        queue: str,
        on_message: Callable[..., None],
        consumer_tag: str,
        arguments: dict[str, Any],
        callback: Callable[[Any], None],
        exclusive: bool,
    ) -> str:
        assert exclusive == self._exclusive
        assert consumer_tag not in self._consumers
        self._consumers[consumer_tag] = on_message

        def arrives() -> Callable[[], None]:
            alone = exclusive or ARGUMENT in arguments
            assert not (alone and self.consumers), "403 ACCESS_REFUSED, or 406 of a relay's second"
            self.consumers.append(consumer_tag)
            told = SimpleNamespace(method=SimpleNamespace(consumer_tag=consumer_tag))
            return lambda: callback(told)

        self._request(arrives)
        return consumer_tag

    def basic_qos(self, prefetch_count: int, callback: Callable[[Any], None]) -> None:
        def arrives() -> Callable[[], None]:
            self.prefetch = prefetch_count
            return lambda: callback(None)

        self._request(arrives)

    def basic_cancel(self, tag: str, callback: Callable[[Any], None] | None = None) -> None:
        if callback is None:
            self.rejected.append(tag)
            self._end(tag)
            return
        self._cancelled.add(tag)

        def arrives() -> Callable[[], None]:
            self._end(tag)
            return lambda: callback(None)

        self._request(arrives)

    def _send_method(self, method: Any) -> None:
        assert method.nowait
        self._end(method.consumer_tag)

    # ------------------------------------------------------------ the broker

    def _end(self, tag: str) -> None:
        """A cancel arrives; a tag that is not known is no error."""
        if tag in self.consumers:
            self.consumers.remove(tag)
            self.empty += not self.consumers

    def _request(self, arrives: Callable[[], Callable[[], None]]) -> None:
        self._kept.append(arrives)
        if len(self._kept) == 1:
            self._answers.append(arrives())

    def answers(self) -> bool:
        """Answer the request that waits; False: none does."""
        if not self._answers:
            return False
        answer = self._answers.popleft()
        self._kept.popleft()
        if self._kept:
            self._answers.append(self._kept[0]())
        answer()
        return True

    def delivers(self, turn: int = 0, skipped: int = 0) -> None:
        """Give a message to one of the consumers; pika drops it when it does not know the tag."""
        tag = self.consumers[turn % len(self.consumers)]
        self._deliveries += 1 + skipped
        taken = self._consumers.get(tag)
        if taken is not None:
            taken(self, SimpleNamespace(delivery_tag=self._deliveries), None, b"")


class Run:
    """A consumer and what it reports."""

    def __init__(
        self, rejects: bool = True, exclusive: bool = False, tag: str = "link", **arguments: Any
    ) -> None:
        self.source = Source(exclusive)
        self.seen: list[int] = []
        self.begun = 0
        self.gaps: list[str] = []
        self.consumer = SourceConsumer(
            self.source,
            "q",
            {"x-priority": -1, **arguments},
            tag,
            lambda channel, method, properties, body: self.seen.append(method.delivery_tag),
            self._begun,
            self.gaps.append,
            exclusive=exclusive,
            rejects=rejects,
        )

    def _begun(self) -> None:
        self.begun += 1


@pytest.mark.parametrize("wanted", [True, False])
def test_demand_that_changes_while_the_source_hangs_leaves_one_consumer_or_none(
    wanted: bool,
) -> None:
    run = Run()
    for want in (True, False, True, False, True, False, wanted):
        run.consumer.want(want)
    while run.source.answers():
        pass
    assert len(run.source.consumers) == int(wanted)
    assert run.gaps == []


@pytest.mark.parametrize("name", ["u" * 255, "ü" * 127 + "u"])
def test_an_upstream_with_a_long_name_had_a_link_that_failed_for_ever(name: str) -> None:
    run = Run(tag=f"federation-link-{name}")
    for want in (True, False, True):
        run.consumer.want(want)
        while run.source.answers():
            pass
    (tag,) = run.source.consumers
    assert len(tag.encode()) in (254, 255)
    assert tag.startswith(f"federation-link-{name[:100]}")
    assert tag.endswith("-2")


@pytest.mark.parametrize("limits", [False, True])
@pytest.mark.parametrize("seed", range(200))
def test_every_delivery_is_seen_however_demand_and_answers_follow_each_other(
    seed: int, limits: bool
) -> None:
    """There are two consumers at most, and that only where the prefetch changes."""
    run, chance = Run(), random.Random(seed)
    wanted, given = False, 0
    for turn in range(200):
        step = chance.randrange(4)
        if step == 0:
            wanted = chance.random() < 0.5
            run.consumer.want(wanted)
        elif step == 1:
            run.source.answers()
        elif run.source.consumers and run.begun:
            given += 1
            run.source.delivers(turn)
        if limits and chance.randrange(60) == 0:
            run.consumer.limit(chance.randrange(1, 100))
        assert len(run.source.consumers) <= 1 + limits
    while run.source.answers():
        pass
    assert len(run.source.consumers) == int(wanted)
    assert run.seen == list(range(1, given + 1))
    assert run.gaps == []


def test_a_delivery_that_is_missing_is_told_once_and_nothing_after_it_is_taken() -> None:
    run = Run()
    run.consumer.want(True)
    run.source.answers()
    run.source.delivers()
    run.source.delivers(skipped=1)
    run.source.delivers()
    assert run.seen == [1]
    assert len(run.gaps) == 1 and "delivery 2 has not arrived, 3 has" in run.gaps[0]


@pytest.mark.parametrize("alone", ["", "exclusive", "relay"])
def test_another_prefetch_is_for_a_consumer_of_its_own(alone: str) -> None:
    """Before, an auto-delete queue ended with the first, unless another one was there."""
    run = Run(exclusive=alone == "exclusive", **{ARGUMENT: "r"} if alone == "relay" else {})
    run.consumer.want(True)
    run.source.answers()
    run.consumer.limit(50)
    while run.source.answers():
        pass
    assert (run.source.prefetch, run.source.consumers) == (50, ["link-2"])
    assert run.source.empty == int(bool(alone))
    run.source.delivers()
    assert run.seen == [1]


@pytest.mark.parametrize("seed", range(100))
def test_a_queue_has_a_consumer_as_long_as_messages_are_wanted(seed: int) -> None:
    run, chance = Run(), random.Random(seed)
    run.consumer.want(True)
    run.source.answers()
    for turn in range(50):
        if chance.randrange(3):
            run.source.answers()
        else:
            run.consumer.limit(turn)
        run.source.delivers(turn)
        assert 1 <= len(run.source.consumers) <= 2
    while run.source.answers():
        pass
    assert (len(run.source.consumers), run.source.empty) == (1, 0)
    assert run.seen == list(range(1, 51)) and run.gaps == []
    assert len(run.source._consumers) <= 2, "what has ended is forgotten"


@pytest.mark.parametrize("rejects", [True, False])
def test_a_consumer_that_is_stopped_while_it_is_replaced_leaves_none(rejects: bool) -> None:
    run, over = Run(rejects=rejects), []
    run.consumer.want(True)
    run.source.answers()
    run.consumer.limit(50)
    run.source.answers()
    assert run.source.consumers == ["link-1", "link-2"]
    run.consumer.stop(lambda: over.append(True))
    if not rejects:
        run.source.delivers(turn=0)
        run.source.delivers(turn=1)
        assert (run.seen, over) == ([1, 2], [])
    while run.source.answers():
        pass
    assert (over, run.source.consumers) == ([True], [])


def test_a_consumer_that_is_stopped_while_it_begins_ends_when_it_has_begun() -> None:
    run = Run()
    run.consumer.want(True)
    run.consumer.stop(lambda: None)
    assert run.source.answers()
    assert (run.source.consumers, run.source.rejected) == ([], ["link-1"])
    run.consumer.want(True)
    assert not run.source.answers()


def test_a_relays_consumer_that_is_stopped_sees_all_that_arrives_until_the_answer() -> None:
    run, over = Run(rejects=False), []
    run.consumer.want(True)
    run.source.answers()
    run.consumer.stop(lambda: over.append(True))
    taken = run.source._consumers["link-1"]
    taken(run.source, SimpleNamespace(delivery_tag=1), None, b"")
    assert (run.seen, over, run.source._cancelled) == ([1], [], set())
    run.source.answers()
    assert over == [True] and run.source.rejected == []


@pytest.mark.parametrize("begins", [True, False])
def test_a_relays_consumer_that_begins_or_has_ended_is_stopped_after_an_answer(
    begins: bool,
) -> None:
    run, over = Run(rejects=False), []
    run.consumer.want(True)
    if not begins:
        run.source.answers()
        run.consumer.want(False)
    run.consumer.stop(lambda: over.append(True))
    assert over == []
    while run.source.answers():
        pass
    assert over == [True] and run.source.consumers == []
