"""`message_stats` and rates of queues, exchanges and vhosts, from what the nodes answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from warren_broker.counting.message_stats import (
    CHANNEL_COUNTED,
    COUNTED,
    EXCHANGE_COUNTED,
    LENGTHS,
    NO_RATES,
    OCTETS,
    PUBLISH,
    RECV_OCT,
    VHOST_COUNTED,
)
from warren_broker.http.calls import HttpCall
from warren_broker.http.kept_samples import KeptSamples
from warren_broker.http.listing import columns_of
from warren_broker.http.sample_ranges import Range, Ranges, details
from warren_wire.admin.statistics import (
    GetExchangeStatisticsRequest,
    GetQueueStatisticsRequest,
    GetVhostStatisticsRequest,
)

Statistics: TypeAlias = Sequence[Any]
"""`admin.statistics.QueueStatistics`, as the node answers it."""
STATISTICS_KEYS: Final = frozenset({"message_stats", *(f"{name}_details" for name in LENGTHS)})
"""Keys of a queue for which the nodes are asked."""
VHOST_STATISTICS_KEYS: Final = STATISTICS_KEYS.union(
    LENGTHS, OCTETS, [f"{name}_details" for name in OCTETS]
)
"""Those of a vhost."""
HANDED_OUT: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")
"""Their sum is `deliver_get`."""


def wants(call: HttpCall, key: str) -> bool:
    """Return whether a key of one object is shown that takes a question of its own."""
    if call.query.get("disable_stats") == "true":
        return False
    columns = columns_of(call.query)
    return columns is None or key in columns


def wants_statistics(call: HttpCall, keys: Iterable[str] = STATISTICS_KEYS) -> bool:
    """Return whether one of the keys is shown for which the nodes are asked."""
    return call.rates.on and any(wants(call, key) for key in keys)


async def statistics_of(call: HttpCall, vhost: str) -> dict[str, Statistics]:
    """Return the statistics of a vhost's queues by name; those that nothing has used have none."""
    found = await call.get(GetQueueStatisticsRequest(), vhost=vhost)
    return {str(one[0]): one for one in found}


async def statistics_of_one(
    call: HttpCall, vhost: str, name: str, samples: bool
) -> Statistics | None:
    """Return the statistics of one queue; samples: with those that the nodes have kept."""
    found = await call.get(GetQueueStatisticsRequest(name, samples), vhost=vhost)
    return found[0] if found else None


NO_RANGES: Final = Ranges()


def shown_statistics(
    one: Statistics | None, ranges: Ranges = NO_RANGES, now_ms: int = 0
) -> dict[str, Any]:
    """Return the keys of a queue that its statistics give; None: it has none.

    As in RabbitMQ, a queue to which nothing was published has no `publish`, and one from which
    nothing was asked for has none of the other counts.
    """
    counts, rates, kept = one[1:4] if one is not None else ((), NO_RATES, ())
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
    points = {name: kept.counts(name, wanted, now_ms) for name in kept.names}
    points["deliver_get"] = [
        {"sample": sum(one["sample"] for one in at), "timestamp": at[0]["timestamp"]}
        for at in zip(*(points[name] for name in HANDED_OUT), strict=True)
    ]
    for name in points.keys() & stats.keys():
        stats[f"{name}_details"] = details(stats[f"{name}_details"]["rate"], points[name])


async def exchange_statistics(
    call: HttpCall, vhost: str, name: str = "", samples: bool = False
) -> dict[str, Statistics]:
    """Return the statistics of a vhost's exchanges by name, or of one; `amq.default` is "" then."""
    found = await call.get(GetExchangeStatisticsRequest(name, samples), vhost=vhost)
    return {str(one[0]): one for one in found}


def shown_exchange_statistics(
    one: Statistics | None, wanted: Range | None = None, now_ms: int = 0
) -> dict[str, Any]:
    """Return `message_stats` of an exchange; None: no client has published through it."""
    if one is None:
        return {}
    samples = KeptSamples(one[3], names=EXCHANGE_COUNTED)
    stats: dict[str, Any] = {}
    for name, count, rate in zip(EXCHANGE_COUNTED, one[1], one[2], strict=False):
        if count:
            points = None if wanted is None else samples.counts(name, wanted, now_ms)
            stats[name], stats[f"{name}_details"] = count, details(rate, points)
    return {"message_stats": stats} if stats else {}


async def vhost_statistics(
    call: HttpCall, name: str = "", samples: bool = False
) -> dict[str, Statistics]:
    """Return the statistics of the vhosts that the user sees by name, or of one."""
    found = await call.get(GetVhostStatisticsRequest(name, samples))
    return {str(one[0]): one for one in found}


def shown_vhost_statistics(
    one: Statistics | None, ranges: Ranges = NO_RANGES, now_ms: int = 0
) -> dict[str, Any]:
    """Return lengths, octets and `message_stats` of a vhost; None: nothing is known of it."""
    if one is None:
        return {}
    counts, rates, kept, lengths = one[1:5]
    samples, wanted = KeptSamples(kept, True, VHOST_COUNTED), ranges.lengths
    shown: dict[str, Any] = {}
    for at, name in enumerate(LENGTHS):
        points = None if wanted is None else samples.lengths(name, wanted, now_ms)
        shown[name] = lengths[at] if lengths else 0
        shown[f"{name}_details"] = details(rates[len(VHOST_COUNTED) + at], points)
    octets = counts[RECV_OCT:], rates[RECV_OCT:]
    shown |= shown_octets(*octets, samples, ranges.data_rates, now_ms)
    if any(counts[:RECV_OCT]):
        stats = client_stats(counts, rates)
        if ranges.msg_rates is not None:
            add_samples(stats, samples, ranges.msg_rates, now_ms)
        shown["message_stats"] = stats
    return shown


def shown_octets(
    counts: Sequence[int],
    rates: Sequence[float],
    samples: KeptSamples,
    wanted: Range | None,
    now_ms: int,
) -> dict[str, Any]:
    """Return the octets of a connection or vhost with their rates; no counts: nothing came yet."""
    shown: dict[str, Any] = {}
    for at, name in enumerate(OCTETS):
        points = None if wanted is None else samples.counts(name, wanted, now_ms)
        shown[name] = counts[at] if counts else 0
        shown[f"{name}_details"] = details(rates[at] if rates else 0.0, points)
    return shown


def client_stats(counts: Sequence[int], rates: Sequence[float]) -> dict[str, Any]:
    """Return `message_stats` of a vhost or channel, in the order of CHANNEL_COUNTED."""
    stats = message_stats(counts[: len(COUNTED)], rates)
    if counts[PUBLISH]:
        for at in range(len(COUNTED), len(CHANNEL_COUNTED)):
            name = CHANNEL_COUNTED[at]
            stats[name], stats[f"{name}_details"] = counts[at], details(rates[at], None)
    return stats


def message_stats(counts: Sequence[int], rates: Sequence[float]) -> dict[str, Any]:
    """Return a queue's counts, each with its rate."""
    values = dict(zip(COUNTED, counts, strict=True))
    grown = dict(zip(COUNTED, rates, strict=False))
    kept: list[str] = []
    if counts[PUBLISH]:
        kept.append(COUNTED[PUBLISH])
    if any(count for at, count in enumerate(counts) if at != PUBLISH):
        values |= handed_out(counts)
        grown["deliver_get"] = sum(grown[name] for name in HANDED_OUT)
        kept += handed_out(counts)
    shown: dict[str, Any] = {}
    for name in kept:
        shown[name] = values[name]
        shown[f"{name}_details"] = details(grown[name], None)
    return shown


def handed_out(counts: Sequence[int]) -> dict[str, int]:
    """Return a queue's counts but `publish`, with their sum `deliver_get`."""
    values = {name: counts[at] for at, name in enumerate(COUNTED) if at != PUBLISH}
    return {**values, "deliver_get": sum(values[name] for name in HANDED_OUT)}


def summed_rows(rows: Sequence[Sequence[int]]) -> list[int]:
    """Return the sums of several queues' counts."""
    return [sum(column) for column in zip(*rows, strict=True)]
