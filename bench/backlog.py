"""The cost of a backlog: memory per message, restart, disk after consumption."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from bench import generator
from bench.amqp091 import Client, NotServed, until_served
from bench.peers import NODES, Peer, peers
from bench.processes import cpu_s, resident_bytes
from bench.report import show
from bench.rounds import Column, Plan, measured, table

QUEUE = "backlog"
LARGE_BYTES, SMALL_BYTES = 1024, 100
RESTART_S = 600.0
SETTLE_S = 5
STEPS = 5
TRIAL = 20_000
FILL_S_MAX = 150.0
"""A backlog is limited to what the cluster can accept in this time, by a trial."""
DISK_AFTER_S = 30
MIB = 2**20

RESTART = [
    Column("filled, msg/s", ",.0f", lambda one: one["filled_per_s"]),
    Column("disk of a node, MiB", ",.0f", lambda one: one["disk_full"] / MIB),
    Column("memory of a node, MiB", ",.0f", lambda one: one["resident"] / MIB),
    Column("restart of all, s", ".1f", lambda one: one["restart_all_s"]),
    Column("its CPU per node, s", ".1f", lambda one: one["restart_all_cpu_s"]),
    Column("restart of one, s", ".1f", lambda one: one["restart_one_s"]),
    Column("consumed, msg/s", ",.0f", lambda one: one["drained_per_s"]),
    Column("disk after, MiB", ",.1f", lambda one: one["disk_after"] / MIB),
    Column(f"{DISK_AFTER_S} s later", ",.1f", lambda one: one["disk_later"] / MIB),
]
MEMORY = [
    Column("messages", ",.0f", lambda one: one["messages"]),
    Column("filled, msg/s", ",.0f", lambda one: one["filled_per_s"]),
    Column("bytes per message, last 3 fifths", ".2f", lambda one: one["late_bytes"]),
    Column("bytes per message, all", ".2f", lambda one: one["all_bytes"]),
    Column("memory of a node, MiB", ",.0f", lambda one: one["resident"] / MIB),
]


# ---------------------------------------------------------------- restart, disk


def restart(plan: Plan) -> list[dict[str, Any]]:
    """Fill a queue with 1 KiB messages, restart all nodes, restart its leader, consume."""
    program = generator.find()
    found, notes = peers(plan.only)
    results = measured(
        plan,
        found,
        lambda peer: _restarted(program, peer, plan.messages),
        lambda one: _say(one, RESTART),
    )
    show(
        f"Restart with {plan.messages:,} x 1 KiB in a queue; disk when they are consumed",
        table(results, RESTART),
        notes,
    )
    return results


def _fill(
    program: Path, peer: Peer, size: int, count: int, publishers: dict[str, int]
) -> dict[str, Any]:
    """Publish so many messages of a size, each confirmed."""
    targets = peer.targets()
    return generator.run(
        program, "fill", targets=targets, queue=QUEUE, size=size, count=count, **publishers
    )


def _restarted(program: Path, peer: Peer, messages: int) -> dict[str, Any]:
    filled = _fill(program, peer, LARGE_BYTES, messages, {"window": 1000})
    time.sleep(SETTLE_S)
    disk, resident = max(peer.data_bytes()), max(map(resident_bytes, peer.pids()))
    targets = peer.targets().split(",")
    peer.stop()
    began = time.monotonic()
    peer.spawn(range(NODES))
    _until_whole(targets[0])
    all_s, cpu = time.monotonic() - began, sum(map(cpu_s, peer.pids())) / NODES
    for target in targets:
        until_served(target, [QUEUE], RESTART_S)
    leader = peer.leader(QUEUE)
    peer.stop_node(leader)
    began = time.monotonic()
    peer.spawn(range(leader, leader + 1))
    _until_whole(targets[leader])
    one_s = time.monotonic() - began
    # The two gets took one message each, the probes put five in.
    drained = generator.run(
        program,
        "drain",
        targets=peer.targets(),
        queue=QUEUE,
        expect=messages - 2,
        prefetch=1000,
        ack_every=100,
        idle_end=10,
        no_declare=True,
    )
    after = max(peer.data_bytes())
    time.sleep(DISK_AFTER_S)
    return {
        "messages": messages,
        "filled_per_s": filled["published_per_s"],
        "disk_full": disk,
        "resident": resident,
        "restart_all_s": all_s,
        "restart_all_cpu_s": cpu,
        "restart_one_s": one_s,
        "drained_per_s": drained["consumed_per_s"],
        "disk_after": after,
        "disk_later": max(peer.data_bytes()),
    }


def _until_whole(target: str) -> None:
    """Wait until the node delivers a message of the queue and confirms one."""
    end = time.monotonic() + RESTART_S
    while True:
        if until_served(target, [QUEUE], end - time.monotonic()):
            raise RuntimeError(f"{target} does not serve {RESTART_S:g} s after its start")
        try:
            client = Client(target, 5.0)
        except NotServed:
            continue
        try:
            if client.get(QUEUE, 5.0):
                return
        except NotServed:
            continue
        finally:
            client.close()


# ---------------------------------------------------------------- memory


def memory(plan: Plan) -> list[dict[str, Any]]:
    """Measure resident memory per ready message: a fast publisher, and blocks of a few messages."""
    program = generator.find()
    found, notes = peers(plan.only)
    patterns = (
        ("fast publisher, window 1000", plan.messages, {"window": 1000}),
        (
            "20 publishers, window 1: a message per publish",
            plan.messages,
            {"pubs": 20, "window": 1},
        ),
        ("fast publisher, window 1000", plan.large, {"window": 1000}),
    )
    results = []
    for number, (title, messages, publishers) in enumerate(patterns):
        fill = partial(_filled, program, messages=messages, publishers=publishers)
        of_it = measured(
            plan if number < 2 else _once(plan), found, fill, lambda one: _say(one, MEMORY)
        )
        of_it = [{"pattern": title, **one} for one in of_it]
        show(f"Backlog of {messages:,} x {SMALL_BYTES} B; {title}", table(of_it, MEMORY), notes)
        results += of_it
    return results


def _once(plan: Plan) -> Plan:
    return Plan(seconds=plan.seconds, rounds=1, only=plan.only, large=plan.large)


def trial_of(messages: int) -> int:
    """Return how many messages of a backlog are published first, to see how fast that is."""
    return max(1, min(TRIAL, messages // (STEPS + 1)))


def step_of(rest: int, per_s: float) -> int:
    """Return how many messages each step adds, so that all take no longer than FILL_S_MAX."""
    return max(1, int(min(rest, per_s * FILL_S_MAX) / STEPS))


def _filled(program: Path, peer: Peer, messages: int, publishers: dict[str, int]) -> dict[str, Any]:
    """Fill in steps; memory is that of the node that uses the most."""
    time.sleep(SETTLE_S)
    held = [max(map(resident_bytes, peer.pids()))]
    counts, seconds = [0], 0.0
    step = trial = trial_of(messages)
    for number in range(STEPS + 1):
        report = _fill(program, peer, SMALL_BYTES, step, publishers)
        seconds += report["confirmed"] / report["published_per_s"]
        time.sleep(SETTLE_S)
        counts.append(counts[-1] + int(report["confirmed"]))
        held.append(max(map(resident_bytes, peer.pids())))
        if number == 0:
            step = step_of(messages - trial, report["published_per_s"])
    late = 1 + STEPS * 2 // 5
    return {
        "messages": counts[-1],
        "filled_per_s": counts[-1] / seconds,
        "resident": held[-1],
        "steps": counts,
        "step_bytes": held,
        "all_bytes": (held[-1] - held[0]) / counts[-1],
        "late_bytes": (held[-1] - held[late]) / (counts[-1] - counts[late]),
    }


def _say(one: dict[str, Any], columns: list[Column]) -> None:
    text = "  ".join(f"{each.title} {each.value(one):{each.form}}" for each in columns)
    print(f"  round {one['round'] + 1}  {one['peer']:<16} {text}", flush=True)
