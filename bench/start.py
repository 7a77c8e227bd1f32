"""From starting nodes with empty directories to the first confirmed message."""

from __future__ import annotations

import time
from typing import Any

from bench.amqp091 import Client
from bench.peers import Peer, Warren, peers
from bench.processes import cpu_s
from bench.rabbitmq import RabbitMQ
from bench.report import show
from bench.rounds import Column, Plan, table, turns

TIMEOUT_S = 120.0
QUEUE = "start"
SIZES = (1, 3)


def start(plan: Plan) -> list[dict[str, Any]]:
    """Start one node, and three, of each cluster in turn; declare a quorum queue and publish."""
    notes = ["a cluster is asked every 0.05 (Warren, one RabbitMQ) or 0.5 s whether it is complete"]
    found, missing = peers(plan.only)
    results: list[dict[str, Any]] = []
    for nodes in SIZES:
        some = [_of(peer, nodes) for peer in found]
        results += [
            {"peer": peer.name, "round": turn, "nodes": nodes, **_first_confirm(peer)}
            for turn, peer in turns(plan, some)
        ]
        columns = [
            Column("complete s", ".2f", lambda one: one["complete_s"]),
            Column("first confirm s", ".2f", lambda one: one["confirm_s"]),
            Column("CPU s of all nodes", ".2f", lambda one: one["cpu_s"]),
        ]
        rows = table([one for one in results if one["nodes"] == nodes], columns)
        show(f"Start with empty directories, nodes: {nodes}", rows, [*notes, *missing])
    return results


def _of(peer: Peer, nodes: int) -> Peer:
    return RabbitMQ(peer.root, nodes) if isinstance(peer, RabbitMQ) else Warren(nodes)


def _first_confirm(peer: Peer) -> dict[str, float]:
    began = time.monotonic()
    with peer:
        complete = time.monotonic()
        client = Client(peer.targets().split(",")[0], TIMEOUT_S)
        client.declare(QUEUE, TIMEOUT_S)
        assert not client.publish_to_all([QUEUE], b"the first", TIMEOUT_S)
        confirmed = time.monotonic()
        client.close()
        return {
            "complete_s": complete - began,
            "confirm_s": confirmed - began,
            "cpu_s": sum(map(cpu_s, peer.pids())),
        }
