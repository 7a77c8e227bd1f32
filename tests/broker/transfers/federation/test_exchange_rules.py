"""What passes between federated exchanges: hops, circles, headers of RabbitMQ's form."""

from __future__ import annotations

from typing import Any

import pytest

from warren_broker.transfers.federation.exchange_rules import (
    BOUND_FROM,
    ClusterExchange,
    entered,
    may_enter,
    passed_on,
)

HERE, THERE = ClusterExchange("here", "/", "x"), ClusterExchange("there", "v", "y")
FAR = ClusterExchange("far", "/", "z")


def test_a_message_enters_as_long_as_it_has_hops_left_and_has_not_been_here() -> None:
    one = entered(None, "amqp://there", THERE, False)
    two = entered(one, "amqp://far", FAR, True)
    assert [entry["exchange"] for entry in two] == ["z", "y"]
    assert [may_enter(before, HERE, 1) for before in (None, one)] == [True, False]
    assert [may_enter(before, HERE, 2) for before in (one, two)] == [True, False]
    back = entered(two, "amqp://here", HERE, False)
    assert not may_enter(back, HERE, 100)
    assert may_enter(back, ClusterExchange("here", "/", "another"), 100)


@pytest.mark.parametrize("strange", ["text", 7, [], ["text", 7], {"cluster-name": "here"}])
def test_headers_that_no_link_has_made_count_for_nothing(strange: Any) -> None:
    assert may_enter(strange, HERE, 1)
    assert len(entered(strange, "u", THERE, False)) == 1


def hops(bindings: list[Any], max_hops: int) -> list[int]:
    """The hops that the bindings made upstream have left."""
    made = passed_on(bindings, HERE, THERE, max_hops)
    return [arguments[BOUND_FROM][0]["hops"] for _, arguments in made.values()]


def bound_from(place: ClusterExchange, left: Any, suffix: str = "") -> dict[str, Any]:
    """Arguments of a binding that a link of that place has made here."""
    entry = {"cluster-name": place.cluster, "exchange": place.shown + suffix, "hops": left}
    return {BOUND_FROM: [entry]}


def test_a_binding_is_passed_on_with_the_hops_that_are_left_and_once() -> None:
    assert hops([("k", {}), ("k", {}), ("l", {"a": 1})], 3) == [3, 3]
    assert hops([("k", bound_from(FAR, 3))], 5) == [2]
    assert hops([("k", bound_from(FAR, 9))], 2) == [2]
    assert hops([("k", bound_from(FAR, 1))], 5) == []
    ((key, arguments),) = passed_on([("k", bound_from(FAR, 3))], HERE, THERE, 5).values()
    assert key == "k"
    assert [entry["cluster-name"] for entry in arguments[BOUND_FROM]] == ["here", "far"]


@pytest.mark.parametrize("suffix", ["", " A", " B"])
def test_a_binding_is_not_passed_on_to_the_exchange_that_it_is_for(suffix: str) -> None:
    assert hops([("k", bound_from(THERE, 9, suffix))], 9) == []
    assert hops([("k", bound_from(ClusterExchange("there", "v", "yy"), 9, suffix))], 9) == [8]


@pytest.mark.parametrize("left", [None, "3", []])
def test_a_binding_with_hops_that_are_no_number_is_not_passed_on(left: Any) -> None:
    assert hops([("k", bound_from(FAR, left))], 9) == []
