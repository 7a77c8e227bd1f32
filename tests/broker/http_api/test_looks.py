"""Rates between two looks at a connection or channel."""

from __future__ import annotations

from warren_broker.http_api.looks import LOOKS_KEPT, Looks


def rate(looks: Looks, at_s: float, octets: int, key: object = "c") -> float:
    """The rate that a look shows."""
    return looks.details(at_s, key, {"recv_oct": octets})["recv_oct_details"]["rate"]


def test_a_rate_is_of_two_looks_an_interval_apart() -> None:
    looks = Looks(5.0)
    assert rate(looks, 0, 1000) == 0, "one look is no rate"
    assert rate(looks, 1, 9000) == 0, "too early for the next one"
    assert rate(looks, 10, 3000) == 200.0
    assert rate(looks, 11, 9000) == 200.0, "shown until the next look"
    assert rate(looks, 20, 3000) == 0


def test_a_look_of_long_ago_says_nothing() -> None:
    looks = Looks(5.0)
    rate(looks, 0, 0)
    assert rate(looks, 100, 1_000_000) == 0
    assert rate(looks, 110, 1_000_100) == 10.0


def test_no_rate_is_negative_and_another_object_begins_at_nothing() -> None:
    looks = Looks(5.0)
    rate(looks, 0, 5000)
    assert rate(looks, 10, 0) == 0
    assert rate(looks, 20, 100, key="d") == 0


def test_looks_are_bounded() -> None:
    looks = Looks(5.0)
    for number in range(LOOKS_KEPT + 10):
        rate(looks, 0, 0, key=number)
    assert len(looks._looks) == LOOKS_KEPT
    assert rate(looks, 10, 50, key=LOOKS_KEPT) == 5.0
    assert rate(looks, 10, 50, key=0) == 0, "it was forgotten"
