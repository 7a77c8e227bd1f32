"""Rates of queues' lengths, between two looks."""

from __future__ import annotations

from typing import Any

from warren_broker.http_api.queue_rates import LOOKS_KEPT, QueueRates


def queue(messages: int, name: str = "q") -> dict[str, Any]:
    """A queue as the API shows it."""
    held = {"messages_ready": messages, "messages_unacknowledged": 0}
    return {"vhost": "/", "name": name, "messages": messages, **held}


def rate(rates: QueueRates, at_s: float, messages: int, name: str = "q") -> float:
    """That of all messages."""
    return rates.details(at_s, queue(messages, name))["messages_details"]["rate"]


def test_a_rate_is_the_difference_of_two_looks_at_least_an_interval_apart() -> None:
    rates = QueueRates(5.0)
    assert rate(rates, 100, 10) == 0, "the first look"
    assert rate(rates, 102, 90) == 0, "too early"
    assert rate(rates, 110, 60) == 5.0
    assert rate(rates, 111, 999) == 5.0, "the last rate holds until the next look"
    assert rate(rates, 115, 10) == -10.0, "a queue that becomes shorter"
    assert rate(rates, 115, 10, "other") == 0
    assert set(rates.details(115, queue(10))) == {
        *("messages_details", "messages_ready_details", "messages_unacknowledged_details")
    }


def test_a_look_of_long_ago_gives_no_rate() -> None:
    rates = QueueRates(5.0)
    rate(rates, 100, 0)
    assert rate(rates, 200, 1_000) == 0
    assert rate(rates, 210, 1_100) == 10


def test_looks_are_bounded_and_those_of_long_ago_go_first() -> None:
    rates = QueueRates(5.0)
    rate(rates, 0, 0, "kept")
    for number in range(LOOKS_KEPT):
        rate(rates, 1, 0, f"q{number}")
    assert rate(rates, 10, 100, "kept") == 0, "it was forgotten"
    assert rate(rates, 11, 20, f"q{LOOKS_KEPT - 1}") == 2
