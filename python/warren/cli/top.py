"""`warren top`: the nodes, and the queues with most to do, while they work."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Final

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from warren.admin import Admin
from warren.cli import output
from warren.cli.command_line import JSONL, wanted_format
from warren.cli.target import Json, Uri, connect
from warren_wire.admin.members import NodeInfo
from warren_wire.admin.overview import NodeTotals
from warren_wire.admin.queues import QueueInfo

_RATES: Final = {
    "in/s": "global_messages_received",
    "out/s": "global_messages_delivered",
    "acks/s": "global_messages_acknowledged",
}
"""Titles of a node's rates, with the counters that they are of."""
MEBIBYTE: Final = 1 << 20


class Sample:
    """What the cluster says at one time."""

    def __init__(self, admin: Admin, sort: str, count: int) -> None:
        self.at = time.monotonic()
        self.nodes: tuple[NodeInfo, ...] = admin.nodes.list()
        self.totals = {one.node: one for one in admin.cluster.totals().nodes}
        self.page = admin.queues.page(page_size=count, sort=sort, sort_reverse=True)

    def rates(self, node: str, before: Sample | None) -> dict[str, float]:
        """Return messages per second of a node since another sample; 0 where not known."""
        now, then = self.totals.get(node), None if before is None else before.totals.get(node)
        if now is None or then is None or now.boot != then.boot or now.at_ms <= then.at_ms:
            return dict.fromkeys(_RATES, 0.0)
        seconds = (now.at_ms - then.at_ms) / 1000
        return {
            title: (now.counters.get(name, 0) - then.counters.get(name, 0)) / seconds
            for title, name in _RATES.items()
        }

    def growth(self, queue: QueueInfo, before: Sample | None) -> float:
        """Return by how many ready messages a queue grows per second; 0 where not known."""
        if before is None:
            return 0.0
        then = {one.name: one.messages_ready for one in before.page.items}
        ready = queue.messages_ready
        return (ready - then.get(queue.name, ready)) / max(self.at - before.at, 1e-3)


def top(
    sort: Annotated[
        str, typer.Option(help="queues with the most of this first: a key of the HTTP API")
    ] = "messages",
    count: Annotated[int, typer.Option(min=1, max=500, help="queues that are shown")] = 20,
    interval: Annotated[float, typer.Option(min=0.2, help="seconds between two looks")] = 2.0,
    samples: Annotated[int, typer.Option(min=0, help="end after as many; 0: never")] = 0,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Show nodes with their rates, and queues, until Ctrl-C; with --jsonl a line for each look.

    Rates are of the time since the look before. Queues are those of the vhost.
    """
    if json and wanted_format() != JSONL:
        output.note("looks come one by one: they are printed as with --jsonl")
    before: Sample | None = None
    is_live = sys.stdout.isatty() and not json
    made = 0
    with connect(uri) as connection, Live(screen=is_live, auto_refresh=False) as live:
        admin = Admin(connection)
        try:
            while True:
                sample = Sample(admin, sort, count)
                if json:
                    output.as_json_line(_facts(sample, before))
                elif is_live:
                    live.update(shown(sample, before), refresh=True)
                else:
                    live.console.print(shown(sample, before))
                before, made = sample, made + 1
                if made == samples:
                    return
                time.sleep(interval)
        except KeyboardInterrupt:
            return


def _facts(sample: Sample, before: Sample | None) -> dict[str, object]:
    return {
        "nodes": [
            {
                "name": node.name,
                "running": node.running,
                "alarms": node.alarms,
                **sample.rates(node.name, before),
            }
            for node in sample.nodes
        ],
        "queues": [
            {
                "name": queue.name,
                "ready": queue.messages_ready,
                "unacknowledged": queue.messages_unacknowledged,
                "consumers": queue.consumer_count,
                "growth": sample.growth(queue, before),
            }
            for queue in sample.page.items
        ],
    }


def shown(sample: Sample, before: Sample | None) -> Group:
    """Return both tables."""
    nodes = Table(title="nodes", expand=True)
    for title in ("node", "state"):
        nodes.add_column(title)
    for title in (*_RATES, "connections", "channels", "memory", "disk free"):
        nodes.add_column(title, justify="right")
    for node in sample.nodes:
        state = ", ".join(("running" if node.running else "down", *node.alarms))
        rates = [f"{rate:,.0f}" for rate in sample.rates(node.name, before).values()]
        nodes.add_row(Text(node.name), state, *rates, *_of_process(sample.totals.get(node.name)))
    queues = Table(title=f"queues ({sample.page.total_count:,} in the vhost)", expand=True)
    queues.add_column("queue", overflow="ellipsis", no_wrap=True)
    for title in ("ready", "growth/s", "unacknowledged", "claimed", "consumers"):
        queues.add_column(title, justify="right")
    queues.add_column("leader")
    for queue in sample.page.items:
        queues.add_row(
            Text(queue.name),
            f"{queue.messages_ready:,}",
            f"{sample.growth(queue, before):+,.0f}",
            f"{queue.messages_unacknowledged:,}",
            f"{queue.messages_claimed:,}",
            f"{queue.consumer_count:,}",
            Text(queue.leader or "none"),
        )
    return Group(nodes, queues)


def _of_process(found: NodeTotals | None) -> tuple[str, ...]:
    if found is None:
        return ("–",) * 4
    memory = f"{found.mem_used // MEBIBYTE:,} of {found.mem_limit // MEBIBYTE:,} MiB"
    disk = f"{found.disk_free // MEBIBYTE:,} MiB"
    return f"{found.connections:,}", f"{found.channels:,}", memory, disk
