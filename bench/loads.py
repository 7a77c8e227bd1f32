"""The loads that users bring: one queue in many shapes, few messages at a time, many clients."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import generator, html_report
from bench.flame_graphs import FLAMES, Watched, folder_name, profile
from bench.peers import Peer, Warren, peers
from bench.processes import load, written_bytes
from bench.report import machine, show
from bench.rounds import Column, Plan, ratios, span, turns

WARMUP_S = 2


@dataclass(frozen=True)
class Load:
    """One load, on queues of its own.

    name      of the row
    columns   the figures that count for it
    options   of the generator; else 1 KB, 1 publisher and consumer, window and prefetch 1000,
              ack every 100
    follower  publish and consume at a node that does not lead the queue
    """

    name: str
    columns: tuple[Column, ...]
    options: dict[str, float] = field(default_factory=dict)
    follower: bool = False


RATE = Column("msg/s", ",.0f", lambda one: one["consumed_per_s"])
P50 = Column("confirm p50 ms", ".2f", lambda one: one["confirm_ms"]["p50"])
P99 = Column("confirm p99 ms", ".1f", lambda one: one["confirm_ms"]["p99"])
E2E = Column("delivery p50 ms", ".1f", lambda one: one["e2e_ms"]["p50"])
E2E_P99 = Column("delivery p99 ms", ".1f", lambda one: one["e2e_ms"]["p99"])
CORES = Column("cores of the nodes", ".2f", lambda one: one["cpu"]["watched_cores"])
CPU = Column("CPU µs/msg", ".1f", lambda one: one["cpu_us"])
WRITTEN = Column("bytes written/msg", ",.0f", lambda one: one["written_per_message"])

FULL = (RATE, CPU, WRITTEN)
LATE = (P50, P99, CORES)

LOADS = (
    Load("16 B", FULL, {"size": 16}),
    Load("100 B", FULL, {"size": 100}),
    Load("1 KB", FULL),
    Load("10 KB", FULL, {"size": 10_240}),
    Load("100 KB", FULL, {"size": 102_400}),
    Load("1 KB, window 100", (RATE,), {"window": 100}),
    Load("1 KB, ack each", (RATE, E2E, E2E_P99), {"ack_every": 1}),
    Load("1 KB, priorities 0 to 31", (RATE, E2E, E2E_P99), {"priorities": 32}),
    Load("1 KB, 4 publishers, consumers, queues", (RATE,), {"pubs": 4, "cons": 4, "queues": 4}),
    Load("1 KB, both at a follower", (RATE,), follower=True),
    Load("1,000 msg/s", LATE, {"rate": 1_000, "ack_every": 1}),
    Load("100 msg/s", LATE, {"rate": 100, "ack_every": 1}),
    Load("5,000 msg/s", LATE, {"rate": 5_000, "ack_every": 1}),
    Load("10,000 msg/s", LATE, {"rate": 10_000, "ack_every": 1}),
    Load(
        "50 publishers, consumers, queues, 2,000 msg/s",
        LATE,
        {"pubs": 50, "cons": 50, "queues": 50, "rate": 2_000, "ack_every": 1},
    ),
    Load("one at a time", (RATE, P50), {"window": 1, "prefetch": 1, "ack_every": 1}),
)


def loads(plan: Plan) -> list[dict[str, Any]]:
    """Put every load on every cluster, A B A B; a cluster is started once per round."""
    program = generator.find()
    found, notes = peers(plan.only, other=plan.other)
    results = []
    for turn, peer in turns(plan, found):
        with peer:
            for number, each in enumerate(LOADS):
                if plan.load and each.name not in plan.load:
                    continue
                one = {"peer": peer.name, "round": turn, "load": load(), "name": each.name}
                try:
                    one |= _one(program, peer, each, f"load-{number}", plan.seconds)
                except generator.Failed as error:  # of this row: the others are still worth having
                    one["failed"] = str(error)
                figures = "  ".join(
                    f"{column.title} {column.value(one):{column.form}}"
                    for column in each.columns
                    if "failed" not in one
                )
                wrong = found_wrong(one)
                print(f"  round {turn + 1}  {peer.name:<16} {each.name:<46} {figures} {wrong}")
                results.append(one)
                if plan.profile and isinstance(peer, Warren):
                    notes += _profiled(program, peer, each, number, plan.seconds)
    show("Loads: three nodes, durable quorum queues, every copy synced", rows(results), notes)
    return results


def _one(program: Path, peer: Peer, each: Load, queue: str, seconds: int) -> dict[str, Any]:
    targets, pids = peer.targets(), peer.pids()
    if each.follower:
        generator.run(program, "declare", targets=targets, queue=queue)
        led = peer.leader(queue)
        targets = next(at for i, at in enumerate(targets.split(",")) if i != led)
    before = written_bytes(generator.PLACE)
    options: dict[str, Any] = {"size": 1_024, "window": 1000, "prefetch": 1000, "ack_every": 100}
    report = generator.run(
        program,
        "pubsub",
        targets=targets,
        queue=queue,
        time=seconds,
        warmup=WARMUP_S,
        delete_after=True,
        watch=",".join(map(str, pids)),
        **(options | each.options),
    )
    written = written_bytes(generator.PLACE) - before
    report["written_per_message"] = written / max(1, report["published"])
    rate = report["consumed_per_s"]
    report["cpu_us"] = 1e6 * report["cpu"]["watched_cores"] / rate if rate else 0.0
    return report


def _profiled(
    program: Path, peer: Warren, each: Load, number: int, seconds: int
) -> tuple[str, ...]:
    """Make flame graphs of the nodes under a load; return notes."""
    queue = f"profiled-{number}"
    generator.run(program, "declare", targets=peer.targets(), queue=queue)
    led = peer.leader(queue)
    nodes = [
        Watched(f"node-{i}-{'leader' if i == led else 'follower'}", pid)
        for i, pid in enumerate(peer.pids())
    ]
    place = FLAMES / "loads" / folder_name(f"{peer.name} {each.name}")
    missing = profile(place, nodes, lambda: _one(program, peer, each, queue, seconds))
    return (missing,) if missing else ()


def found_wrong(one: dict[str, Any]) -> str:
    """Describe what one run of a load found wrong, or why it has no figures; empty: nothing."""
    if "failed" in one:  # without the command, which is as long as a table is wide
        return (
            f"no figures of {one['peer']}: it {one['failed'][one['failed'].find('ended with') :]}"
        )
    return generator.faults(one)


def page(results: list[dict[str, Any]], path: Path) -> None:
    """Write the results as a page with charts."""
    columns = {each.name: each.columns for each in LOADS}
    title = "Loads: three nodes, durable quorum queues, every copy synced"
    complete = [one for one in results if "failed" not in one]
    html_report.write(path, title, machine(), complete, rows(results), columns.__getitem__)
    print(f"with charts in {path}")


def rows(results: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Make a row per load and figure: medians (spans) of each cluster, ratios within a round."""
    names = list(dict.fromkeys(one["peer"] for one in results))
    made = []
    for each in LOADS:
        runs = [one for one in results if one["name"] == each.name]
        wrong = "; ".join(filter(None, map(found_wrong, runs))) or "nothing"
        of_load = [one for one in runs if "failed" not in one]
        for column in each.columns if runs else ():
            row = {"load": each.name, "figure": column.title}
            for name in names:
                values = [column.value(one) for one in of_load if one["peer"] == name]
                median = format(statistics.median(values), column.form) if values else "-"
                row[name] = f"{median} ({span(values, column.form)})" if values[1:] else median
            for name in names:
                if name != "Warren" and "Warren" in names:
                    within = ratios(of_load, name, column)
                    row[f"Warren / {name}"] = span([1 / one for one in within if one], ".2f")
            row["found wrong"] = wrong
            made.append(row)
    return made
