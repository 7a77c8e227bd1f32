"""`message_stats` and rates of queues, from what the nodes answer of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from warren_broker.http_api.calls import HttpCall, path_of
from warren_broker.http_api.kept_samples import KeptSamples
from warren_broker.http_api.sample_ranges import Range, Ranges, details
from warren_broker.message_stats import COUNTED, LENGTHS, NO_RATES, PUBLISH

Statistics: TypeAlias = Sequence[Any]
"""`management.statistic_values.QueueStatistics`, as the node answers it."""
STATISTICS_KEYS: Final = frozenset({"message_stats", *(f"{name}_details" for name in LENGTHS)})
"""Keys of a queue for which the nodes are asked."""
_HANDED_OUT: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
"""Their sum is `deliver_get`."""


async def statistics_of(call: HttpCall, vhost: str) -> dict[str, Statistics]:
    """Return the statistics of a vhost's queues by name; those that nothing has used have none."""
    found = await call.get("/statistics/queues", vhost=vhost)
    return {str(one[0]): one for one in found}


async def statistics_of_one(
    call: HttpCall, vhost: str, name: str, samples: bool
) -> Statistics | None:
    """Return the statistics of one queue; samples: with those that the nodes have kept."""
    asked = {"name": name, "samples": "true" if samples else "false"}
    found = await call.get(path_of("statistics", "queues", **asked), vhost=vhost)
    return found[0] if found else None


NO_RANGES: Final = Ranges(None, None)


def shown_statistics(
    one: Statistics | None, ranges: Ranges = NO_RANGES, now_ms: int = 0
) -> dict[str, Any]:
    """Return the keys of a queue that its statistics give; None: it has none.

    As in RabbitMQ, a queue to which nothing was published has no `publish`, and one from which
    nothing was asked for has none of the other counts.
    """
    counts, rates, kept = one[1:] if one is not None else ((), NO_RATES, ())
    samples, wanted = KeptSamples(kept), ranges.lengths
    shown: dict[str, Any] = {
        f"{name}_details": details(
            rate, None if wanted is None else samples.lengths(name, wanted, now_ms)
        )
        for name, rate in zip(LENGTHS, rates[len(COUNTED) :], strict=True)
    }
    if any(counts):
        stats = message_stats(counts, rates)
        if ranges.msg_rates is not None:
            add_samples(stats, samples, ranges.msg_rates, now_ms)
        shown["message_stats"] = stats
    return shown


def add_samples(stats: dict[str, Any], kept: KeptSamples, wanted: Range, now_ms: int) -> None:
    """Add the samples that nodes have kept to `message_stats`."""
    points = {name: kept.counts(name, wanted, now_ms) for name in COUNTED}
    points["deliver_get"] = [
        {"sample": sum(one["sample"] for one in at), "timestamp": at[0]["timestamp"]}
        for at in zip(*(points[name] for name in _HANDED_OUT), strict=True)
    ]
    for name in points.keys() & stats.keys():
        stats[f"{name}_details"] = details(stats[f"{name}_details"]["rate"], points[name])


def message_stats(counts: Sequence[int], rates: Sequence[float]) -> dict[str, Any]:
    """Return a queue's counts, each with its rate."""
    values = dict(zip(COUNTED, counts, strict=True))
    grown = dict(zip(COUNTED, rates, strict=False))
    kept: list[str] = []
    if counts[PUBLISH]:
        kept.append(COUNTED[PUBLISH])
    if any(count for at, count in enumerate(counts) if at != PUBLISH):
        values |= handed_out(counts)
        grown["deliver_get"] = sum(grown[name] for name in _HANDED_OUT)
        kept += handed_out(counts)
    shown: dict[str, Any] = {}
    for name in kept:
        shown[name] = values[name]
        shown[f"{name}_details"] = details(grown[name], None)
    return shown


def handed_out(counts: Sequence[int]) -> dict[str, int]:
    """Return a queue's counts but `publish`, with their sum `deliver_get`."""
    values = {name: counts[at] for at, name in enumerate(COUNTED) if at != PUBLISH}
    return {**values, "deliver_get": sum(values[name] for name in _HANDED_OUT)}


def summed_rows(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the sums of several queues' counts."""
    return [sum(column) for column in zip(*rows, strict=True)]
