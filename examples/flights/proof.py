"""The proof at the end: Parquet and `alerts` agree with the CSV."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import pika
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from data import Table, Totals


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the closing table."""

    claim: str
    found: str
    worked: bool


def parquet_table(directory: Path) -> Table:
    """Return the totals over all batches' directories."""
    table: Table = {}
    rows = ds.dataset(directory / "delays", format="parquet", partitioning="hive").to_table()
    for row in rows.to_pylist():
        key = (row["carrier"], row["date"])
        was = table.get(key, Totals())
        table[key] = Totals(
            was.flights + row["flights"],
            was.departed + row["departed"],
            was.delay_minutes + row["delay_minutes"],
            was.delayed + row["delayed"],
        )
    return table


def write_result(table: Table, path: Path) -> None:
    """Write the year, sorted: carrier, date, flights, departed, delay_minutes, delayed."""
    import pyarrow as pa

    keys = sorted(table)
    pq.write_table(
        pa.table(
            {
                "carrier": [carrier for carrier, _ in keys],
                "date": [date for _, date in keys],
                "flights": [table[key].flights for key in keys],
                "departed": [table[key].departed for key in keys],
                "delay_minutes": [table[key].delay_minutes for key in keys],
                "delayed": [table[key].delayed for key in keys],
            }
        ),
        path,
    )


def check_parquet(found: Table, wanted: Table) -> Check:
    """Compare by carrier and day."""
    wrong = [
        key for key in sorted(wanted.keys() | found.keys()) if found.get(key) != wanted.get(key)
    ]
    flights = sum(totals.flights for totals in found.values())
    told = f"{len(found):,} carrier days, {flights:,} flights"
    if wrong:
        key = wrong[0]
        told += f"; {len(wrong)} differ, first {key}: {found.get(key)}, CSV: {wanted.get(key)}"
    return Check("Parquet equals the CSV", told, not wrong)


def read_alerts(
    address: tuple[str, int], user: str = "guest", password: str = "guest"
) -> list[tuple[int, int, str]]:
    """Consume `alerts` with pika; return (flight, priority, message id) as delivered."""
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(
            address[0], address[1], credentials=pika.PlainCredentials(user, password)
        )
    )
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1000)
    wanted = channel.queue_declare("alerts", passive=True).method.message_count
    got: list[tuple[int, int, str]] = []
    tag = 0
    # After the last one, wait a little for a superfluous one.
    for method, properties, body in channel.consume("alerts", inactivity_timeout=2):
        if method is None:
            break
        got.append((json.loads(body)["number"], properties.priority, properties.message_id))
        tag = method.delivery_tag
        if len(got) % 500 == 0 or len(got) >= wanted:
            channel.basic_ack(tag, multiple=True)
    channel.cancel()
    connection.close()
    return got


def check_alerts(got: list[tuple[int, int, str]], wanted: dict[int, int]) -> list[Check]:
    """Check that each delayed flight is there once, in strict priority order."""
    numbers = [number for number, _, _ in got]
    missing, extra = wanted.keys() - set(numbers), set(numbers) - wanted.keys()
    twice = len(numbers) - len(set(numbers))
    mistaken = sum(wanted.get(number) != priority for number, priority, _ in got)
    urgencies = [priority for _, priority, _ in got]
    risen = sum(after > before for before, after in itertools.pairwise(urgencies))
    return [
        Check(
            "alerts has each delayed flight once",
            f"{len(got):,} of {len(wanted):,}; {len(missing)} missing, {twice} twice, "
            f"{len(extra)} strange",
            not (missing or extra or twice),
        ),
        Check(
            "alerts come in strict priority order",
            f"{len(set(urgencies))} priorities, {risen} out of order, {mistaken} mistaken",
            not risen and not mistaken,
        ),
    ]
