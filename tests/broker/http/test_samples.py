"""What was known at given times, of the samples of several nodes."""

from __future__ import annotations

from typing import Any

import pytest

from warren_broker.counting.message_stats import COUNTED, UNKNOWN
from warren_broker.http.replies import HttpRefusal
from warren_broker.http.samples import (
    AGE_S_MAX,
    KeptSamples,
    Range,
    details,
    range_of,
    ranges_of,
)

MINUTE = Range(60_000, 10_000)


def row(at_s: int, published: int, length: int = UNKNOWN) -> list[int]:
    """One sample."""
    return [at_s * 1000, published, *[0] * (len(COUNTED) - 1), length, length, UNKNOWN]


def node(*rows: list[int], whole: bool = True) -> Any:
    """What a node answers."""
    return [whole, [number for one in rows for number in one]]


def values(points: list[dict[str, int]]) -> list[tuple[int, int]]:
    """Seconds and sample, the latest first."""
    return [(one["timestamp"] // 1000, one["sample"]) for one in points]


def test_counts_are_sums_and_0_before_the_first_sample() -> None:
    kept = KeptSamples([node(row(62, 5), row(75, 9)), node(row(81, 100))])
    assert values(kept.counts("publish", MINUTE, 100_500)) == [
        *((100, 109), (90, 109), (80, 9), (70, 5), (60, 0), (50, 0))
    ]


def test_samples_end_where_older_ones_were_dropped() -> None:
    kept = KeptSamples([node(row(62, 5), whole=False), node(row(10, 7))])
    assert values(kept.counts("publish", MINUTE, 100_000)) == [
        *((100, 12), (90, 12), (80, 12), (70, 12))
    ]


def test_a_length_is_the_latest_leaders() -> None:
    """1. a leads.  2. b does, and its clients' counts are sampled at a.  3. b is ahead."""
    a = node(row(50, 1, 10), row(72, 1), row(95, 2))
    kept = KeptSamples([a, node(row(71, 0, 30))])
    assert values(kept.lengths("messages", MINUTE, 100_000)) == [
        *((100, 30), (90, 30), (80, 30), (70, 10), (60, 10), (50, 10))
    ]
    assert kept.lengths("messages_unacknowledged", MINUTE, 100_000) == []


def test_the_lengths_of_nodes_are_sums() -> None:
    kept = KeptSamples([node(row(50, 0, 10)), node(row(71, 0, 30))], summed=True)
    assert values(kept.lengths("messages", MINUTE, 80_000))[:2] == [(80, 40), (70, 10)]


def test_nothing_was_ever_sampled() -> None:
    assert {value for _, value in values(KeptSamples([]).counts("ack", MINUTE, 100_000))} == {0}
    assert KeptSamples([]).lengths("messages", MINUTE, 100_000) == []
    assert details(0.0, [])["avg"] == 0.0
    assert details(1.23456, None) == {"rate": 1.235}


@pytest.mark.parametrize("given", ["", "x", "1.5", "1e3", "٣", " 5", "+5", "9" * 25])
def test_what_is_no_number_asks_for_nothing(given: str) -> None:
    for query in ({"lengths_age": given, "lengths_incr": "5"}, {"lengths_age": "5"}):
        assert range_of(query, "lengths") is None


@pytest.mark.parametrize(
    "age, incr", [("0", "1"), ("-1", "1"), ("5", "0"), ("5", "-5"), ("501", "1")]
)
def test_what_is_no_number_of_samples_is_refused(age: str, incr: str) -> None:
    for prefix in ("lengths", "msg_rates", "data_rates", "node_stats"):
        with pytest.raises(HttpRefusal, match=f"{prefix}_age={age}"):
            ranges_of({f"{prefix}_age": age, f"{prefix}_incr": incr})


def test_huge_ages_are_bounded() -> None:
    found = range_of({"lengths_age": "9" * 24, "lengths_incr": "9" * 24}, "lengths")
    assert found == Range(AGE_S_MAX * 1000, AGE_S_MAX * 1000)
    assert len(Range(500_000, 1000).times(10**12)) == 501
