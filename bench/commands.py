"""Single commands of one client that waits for each answer: basic.get, declare, delete."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from bench.amqp091 import Client
from bench.peers import Peer, peers
from bench.report import show
from bench.rounds import Column, Plan, measured, table

QUEUE = "commands"
TIMEOUT_S = 30.0
WARMUP = 20
GETS = 500
DECLARATIONS = 100
COLUMNS = [
    Column("empty get p50 ms", ".2f", lambda one: one["empty"]["p50_ms"]),
    Column("p99", ".2f", lambda one: one["empty"]["p99_ms"]),
    Column("get of a message p50 ms", ".2f", lambda one: one["get"]["p50_ms"]),
    Column("its p99", ".2f", lambda one: one["get"]["p99_ms"]),
    Column("declare p50 ms", ".2f", lambda one: one["declare"]["p50_ms"]),
    Column("declare and delete p50 ms", ".2f", lambda one: one["both"]["p50_ms"]),
    Column("their p99", ".2f", lambda one: one["both"]["p99_ms"]),
]


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Return p50 and p99 in ms of at least one duration."""
    ordered = sorted(seconds)
    return {
        f"p{percent}_ms": 1e3 * ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
        for percent in (50, 99)
    }


def timed(call: Callable[[], Any]) -> float:
    """Return how many seconds a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def commands(plan: Plan) -> list[dict[str, Any]]:
    """Measure one client on each cluster in turn; queues are durable quorum queues."""
    found, notes = peers(plan.only)
    results = measured(plan, found, _one)
    show("One command at a time: one client, durable quorum queue", table(results, COLUMNS), notes)
    return results


def _one(peer: Peer) -> dict[str, Any]:
    client = Client(peer.targets().split(",")[0], TIMEOUT_S)
    try:
        client.declare(QUEUE, TIMEOUT_S)
        for _ in range(WARMUP):
            assert not client.get(QUEUE, TIMEOUT_S)
        empty = [timed(partial(client.get, QUEUE, TIMEOUT_S)) for _ in range(GETS)]
        found = []
        for _ in range(GETS):
            assert not client.publish_to_all([QUEUE], b"a message", TIMEOUT_S)
            began = time.perf_counter()
            assert client.get(QUEUE, TIMEOUT_S), "a confirmed message is not there"
            found.append(time.perf_counter() - began)
        declared, both = [], []
        for number in range(DECLARATIONS):
            name = f"{QUEUE}-{number}"
            declared.append(timed(partial(client.declare, name, TIMEOUT_S)))
            deleted = timed(partial(client.delete, name, TIMEOUT_S))
            both.append(declared[-1] + deleted)
        return {
            "empty": quantiles(empty),
            "get": quantiles(found),
            "declare": quantiles(declared),
            "both": quantiles(both),
        }
    finally:
        client.close()
