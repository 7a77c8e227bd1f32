"""Thousands of idle queues: the cost of declaring, holding and restarting them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench import generator
from bench.amqp091 import until_served
from bench.peers import NODES, Peer, peers
from bench.processes import Meter, cpu_s, loopback_bytes, own_network, resident_bytes
from bench.report import show
from bench.rounds import Column, Plan, measured, table

QUEUE = "idle"
IDLE_S = 30
SETTLE_S = 10
DECLARE_S = 60.0
DECLARE_QUEUE_S = 0.25
"""A cluster that takes longer than that is given up. RabbitMQ takes 0.06 s on a busy machine."""
RESTART_S = 300.0
"""After that time a cluster is measured even if it does not serve every queue, with a note."""
COLUMNS = [
    Column("declared per s", ",.0f", lambda one: one["declared_per_s"]),
    Column("declare p99 ms", ".1f", lambda one: one["declare_p99_ms"]),
    Column("memory per queue and node, KiB", ".1f", lambda one: one["queue_bytes"] / 1024),
    Column("memory of a node, MiB", ".0f", lambda one: one["node_bytes"] / 2**20),
    Column("idle: cores per node", ".4f", lambda one: one["idle_cores"]),
    Column("idle: network of all, bytes/s", ",.0f", lambda one: one["idle_bytes_per_s"]),
    Column("restart of all, s", ".1f", lambda one: one["restart_all_s"]),
    Column("its CPU per node, s", ".1f", lambda one: one["restart_all_cpu_s"]),
    Column("restart of one, s", ".1f", lambda one: one["restart_one_s"]),
]


def _say(one: dict[str, Any]) -> None:
    figures = "  ".join(f"{column.title} {column.value(one):{column.form}}" for column in COLUMNS)
    print(
        f"  round {one['round'] + 1}  {one['peer']:<16} {figures}"
        f"  others' cores {one['idle_others']:.2f}",
        flush=True,
    )


def groups(plan: Plan) -> list[dict[str, Any]]:
    """Declare queues, hold them, restart all nodes, restart one; one cluster at a time."""
    program = generator.find()
    found, notes = peers(plan.only)
    with own_network() as alone:
        if not alone:
            notes.append("network bytes are the whole machine's: a namespace needs root")
        results = measured(plan, found, lambda peer: _one(program, peer, plan, notes), _say)
    show(
        f"{plan.queues:,} idle durable quorum queues on three nodes", table(results, COLUMNS), notes
    )
    return results


def _one(program: Path, peer: Peer, plan: Plan, notes: list[str]) -> dict[str, Any]:
    names = [f"{QUEUE}-{number}" for number in range(plan.queues)]
    time.sleep(SETTLE_S)
    empty = [resident_bytes(pid) for pid in peer.pids()]
    declared = generator.run(
        program,
        "declare",
        timeout_s=DECLARE_S + plan.queues * DECLARE_QUEUE_S,
        targets=peer.targets(),
        queue=QUEUE,
        queues=plan.queues,
    )
    time.sleep(SETTLE_S)
    held = [resident_bytes(pid) for pid in peer.pids()]
    meter, crossed = Meter(peer.pids()), loopback_bytes()
    time.sleep(IDLE_S)
    spent, crossed = meter.spent(), loopback_bytes() - crossed
    targets = peer.targets().split(",")
    peer.stop()
    began = time.monotonic()
    peer.spawn(range(NODES))
    without = until_served(targets[0], names, RESTART_S)
    all_s = time.monotonic() - began
    all_cpu = [cpu_s(pid) for pid in peer.pids()]
    if without:
        notes.append(
            f"{peer.name}: {len(without):,} queues did not serve {RESTART_S:g} s after "
            "the restart of all nodes"
        )
    until_served(targets[1], names, RESTART_S)
    peer.stop_node(1)
    began = time.monotonic()
    peer.spawn(range(1, 2))
    without = until_served(targets[1], names, RESTART_S)
    if without:
        notes.append(
            f"{peer.name}: {len(without):,} queues did not serve {RESTART_S:g} s after "
            "the restart of one node"
        )
    return {
        "queues": plan.queues,
        "declared_per_s": declared["per_s"],
        "declare_p50_ms": declared["p50_ms"],
        "declare_p99_ms": declared["p99_ms"],
        "node_bytes": max(held),
        "queue_bytes": sum(h - e for h, e in zip(held, empty, strict=True)) / NODES / plan.queues,
        "idle_cores": sum(spent.cores) / NODES,
        "idle_others": spent.others,
        "idle_bytes_per_s": crossed / spent.seconds,
        "restart_all_s": all_s,
        "restart_all_cpu_s": sum(all_cpu) / NODES,
        "restart_one_s": time.monotonic() - began,
    }
