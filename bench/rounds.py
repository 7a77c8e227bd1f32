"""Rounds over the clusters, and the ratios within a round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.peers import Peer
from bench.processes import load


@dataclass(frozen=True)
class Plan:
    """Sizes of a measurement.

    seconds  of each run; rounds: over the clusters; only: the one cluster to measure
    tls      measure throughput over TLS, too
    other    settings of a second cluster of Warren; load: the loads to measure, all if empty
    profile  make flame graphs, too, in runs of their own
    queues   idle ones; messages: of a backlog; large: of the large backlog
    """

    seconds: int = 10
    warmup: int = 3
    rounds: int = 2
    only: str | None = None
    queues: int = 5_000
    messages: int = 1_000_000
    large: int = 10_000_000
    tls: bool = False
    other: str = ""
    load: tuple[str, ...] = ()
    profile: bool = False


@dataclass(frozen=True)
class Column:
    """One figure of a result: its title, format, and the function that extracts it."""

    title: str
    form: str
    value: Callable[[dict[str, Any]], float]


def turns(plan: Plan, found: list[Peer]) -> Iterator[tuple[int, Peer]]:
    """Yield (round, cluster) in the order A B A B."""
    for turn in range(plan.rounds):
        for peer in found:
            yield turn, peer


def measured(
    plan: Plan,
    found: list[Peer],
    measure: Callable[[Peer], dict[str, Any]],
    say: Callable[[dict[str, Any]], None] = lambda one: None,
) -> list[dict[str, Any]]:
    """Start each cluster in its turn, empty; measure it, stop it, say what was found."""
    results = []
    for turn, peer in turns(plan, found):
        with peer:
            one = {"peer": peer.name, "round": turn, "load": load(), **measure(peer)}
        results.append(one)
        say(one)
    return results


def span(values: list[float], form: str = ".1f") -> str:
    """Format the minimum and maximum of some figures."""
    if not values:
        return "-"
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} - {high}"


def table(results: list[dict[str, Any]], columns: list[Column]) -> list[dict[str, str]]:
    """Make rows of medians (spans) per cluster, then of ratios to Warren's per round."""
    names = list(dict.fromkeys(one["peer"] for one in results))
    rows = []
    for name in names:
        row = {"cluster": name}
        for column in columns:
            values = [column.value(one) for one in results if one["peer"] == name]
            text = format(statistics.median(values), column.form)
            if len(values) > 1:
                text += f" ({span(values, column.form)})"
            row[column.title] = text
        rows.append(row)
    for name in names:
        if name != "Warren" and "Warren" in names:
            row = {"cluster": f"{name} / Warren"}
            row |= {each.title: span(ratios(results, name, each), ".3g") for each in columns}
            rows.append(row)
    return rows


def ratios(results: list[dict[str, Any]], name: str, column: Column) -> list[float]:
    """Divide a peer's figures by Warren's of the same round; skip rounds without both."""
    ours = {one["round"]: column.value(one) for one in results if one["peer"] == "Warren"}
    theirs = {one["round"]: column.value(one) for one in results if one["peer"] == name}
    return [theirs[turn] / ours[turn] for turn in theirs if ours.get(turn)]
