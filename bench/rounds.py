"""Rounds over the clusters in turn, and the ratios within a round."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.peers import Peer


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    seconds  of each run; rounds: over the clusters; only: one cluster, by the name of its choice
    queues   idle ones; messages: of a backlog; large: of the large backlog
    """

    seconds: int = 10
    warmup: int = 3
    rounds: int = 2
    only: str | None = None
    queues: int = 5_000
    messages: int = 1_000_000
    large: int = 10_000_000


@dataclass(frozen=True)
class Column:
    """One figure of a result: its title, format, and how it is read out of the result."""

    title: str
    form: str
    value: Callable[[dict[str, Any]], float]


def turns(plan: Plan, found: list[Peer]) -> Iterator[tuple[int, Peer]]:
    """(round, cluster): A B A B."""
    for turn in range(plan.rounds):
        for peer in found:
            yield turn, peer


def span(values: list[float], form: str = ".1f") -> str:
    """From the least to the most."""
    if not values:
        return "-"
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} - {high}"


def table(results: list[dict[str, Any]], columns: list[Column]) -> list[dict[str, str]]:
    """A row per cluster: median (span) of each column; then the peer's over Warren's, per round."""
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
    """The peer's figure over Warren's of the same round; rounds without both are left out."""
    ours = {one["round"]: column.value(one) for one in results if one["peer"] == "Warren"}
    theirs = {one["round"]: column.value(one) for one in results if one["peer"] == name}
    return [theirs[turn] / ours[turn] for turn in theirs if ours.get(turn)]
