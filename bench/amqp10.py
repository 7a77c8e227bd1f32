"""Throughput over AMQP 1.0: publishing alone, consuming alone, both, both with message-ids."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from bench import generator
from bench.peers import Peer, peers
from bench.report import show
from bench.rounds import Column, Plan, ratios, span, turns

SIZES = (16, 1_024)
WINDOW = 1_000
"""Messages without an outcome, and the consumer's credit, which each tenth of it renews."""
SETTLED_TOGETHER = 100
MESSAGES_MAX = 200_000

_CPU = Column("CPU µs/msg", ".1f", lambda one: one["cpu_us"])
COLUMNS = {
    "publish": (Column("msg/s", ",.0f", lambda one: one["published_per_s"]), _CPU),
    "consume": (Column("msg/s", ",.0f", lambda one: one["consumed_per_s"]), _CPU),
    "both": (Column("msg/s", ",.0f", lambda one: one["consumed_per_s"]), _CPU),
    "both, ids": (Column("msg/s", ",.0f", lambda one: one["consumed_per_s"]), _CPU),
}


def amqp10(plan: Plan) -> list[dict[str, Any]]:
    """Fill a queue, drain it, then publish and consume at once; every cluster, A B A B."""
    program = generator.find()
    found, notes = peers(plan.only, other=plan.other)
    results = []
    for turn, peer in turns(plan, found):
        with peer:
            for size in SIZES:
                for each in _of_size(program, peer, size, plan):
                    rate = COLUMNS[each["name"]][0].value(each)
                    print(
                        f"  round {turn + 1}  {peer.name:<16} {size:>5} B  {each['name']:<9} "
                        f"{rate:>10,.0f} msg/s  CPU {each['cpu_us']:.1f} µs/msg  "
                        f"generator {each['cpu']['generator_cores']:.2f} cores  "
                        f"{generator.faults(each)}",
                        flush=True,
                    )
                    results.append({"peer": peer.name, "round": turn, **each})
    show("AMQP 1.0: 1 publisher, 1 consumer, 3 nodes, every copy synced", rows(results), notes)
    return results


def _of_size(program: Path, peer: Peer, size: int, plan: Plan) -> list[dict[str, Any]]:
    """Measure the loads; what is published alone is what is consumed alone.

    The last one is what clients do that set message-ids and settle each message for itself.
    """
    count = min(plan.messages, MESSAGES_MAX)
    options: dict[str, Any] = {
        "targets": peer.targets(),
        "queue": f"amqp10-{size}",
        "size": size,
        "amqp10": True,
        "window": WINDOW,
        "prefetch": WINDOW,
        "ack_every": SETTLED_TOGETHER,
        "watch": ",".join(map(str, peer.pids())),
    }
    timed: dict[str, Any] = {"time": plan.seconds, "warmup": plan.warmup}
    runs = (
        ("publish", "fill", {"count": count}),
        ("consume", "drain", {"expect": count}),
        ("both", "pubsub", timed),
        ("both, ids", "pubsub", {**timed, "ids": True, "ack_every": 1, "delete_after": True}),
    )
    reports = []
    for name, mode, more in runs:
        report = generator.run(program, mode, **(options | more))
        rate = COLUMNS[name][0].value(report)
        report["cpu_us"] = 1e6 * report["cpu"]["watched_cores"] / rate if rate else 0.0
        reports.append({"name": name, **report})
    return reports


def rows(results: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Make a row per size, load and figure: medians (spans), and ratios within a round."""
    names = list(dict.fromkeys(one["peer"] for one in results))
    made = []
    for size in SIZES:
        for load, columns in COLUMNS.items():
            of_load = [one for one in results if (one["size"], one["name"]) == (size, load)]
            for column in columns:
                row = {"load": f"{size} B, {load}", "figure": column.title}
                for name in names:
                    values = [column.value(one) for one in of_load if one["peer"] == name]
                    row[name] = format(statistics.median(values), column.form)
                    row[name] += f" ({span(values, column.form)})" if values[1:] else ""
                for name in names:
                    if name != "Warren" and "Warren" in names:
                        within = ratios(of_load, name, column)
                        row[f"Warren / {name}"] = span([1 / one for one in within if one], ".2f")
                wrong = map(generator.faults, of_load)
                row["found wrong"] = "; ".join(filter(None, wrong)) or "nothing"
                made.append(row)
    return made
