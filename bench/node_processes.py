"""One node or two on this machine, with queues of one copy: a node uses about one core."""

from __future__ import annotations

import shutil
from typing import Any

from bench import generator
from bench.generator import PLACE
from bench.processes import load
from bench.report import machine, show
from bench.rounds import Column, Plan, table
from warren.local import LocalCluster

MOST = 2
QUEUES = 4
WARMUP_S = 2
SIZES = (100, 1_024)
COLUMNS = [
    Column("msg/s", ",.0f", lambda one: one["consumed_per_s"]),
    Column("cores of the nodes", ".2f", lambda one: one["cpu"]["watched_cores"]),
]


def node_processes(plan: Plan) -> list[dict[str, Any]]:
    """Measure one node and two in turn, 4 publishers, consumers and queues over them."""
    program = generator.find()
    results = []
    for turn in range(plan.rounds):
        for nodes in range(1, MOST + 1):
            for size in SIZES:
                one: dict[str, Any] = {"round": turn, "load_before": load()}
                one |= {
                    "peer": f"{nodes} node{'s' * (nodes > 1)}, {size:,} B",
                    "machine": machine(),
                }
                results.append(one | _one(program, nodes, size, plan.seconds))
    show(f"{QUEUES} queues of one copy on one machine", table(results, COLUMNS), [])
    return results


def _one(program: Any, nodes: int, size: int, seconds: int) -> dict[str, Any]:
    directory = PLACE / "several"
    shutil.rmtree(directory, ignore_errors=True)
    settings = {"queues": {"quorum_initial_group_size": 1}}
    with LocalCluster(nodes=nodes, directory=directory, settings=settings) as cluster:
        report = generator.run(
            program,
            "pubsub",
            targets=cluster.hosts,
            queue="several",
            time=seconds,
            warmup=WARMUP_S,
            size=size,
            window=1000,
            prefetch=1000,
            ack_every=100,
            pubs=QUEUES,
            cons=QUEUES,
            queues=QUEUES,
            watch=",".join(str(cluster.pid(i)) for i in range(nodes)),
        )
    shutil.rmtree(directory, ignore_errors=True)
    return report
