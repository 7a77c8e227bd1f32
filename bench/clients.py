"""Many clients that do little: 200 connections, 2,000 channels, a consumer on each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from bench.peers import NODES, Peer, peers
from bench.processes import Meter, resident_bytes
from bench.report import show
from bench.rounds import Column, Plan, measured, table

CONNECTIONS = 200
CHANNELS = 10
"""Of each connection."""
QUEUES = 200
SETTLE_S = 5
IDLE_S = 20
ANSWER_S = 60.0
PREFETCH = 10
COLUMNS = [
    Column("connections per s", ",.0f", lambda one: one["connections_per_s"]),
    Column("channels per s", ",.0f", lambda one: one["channels_per_s"]),
    Column("consumers per s", ",.0f", lambda one: one["consumers_per_s"]),
    Column("KiB per connection", ".1f", lambda one: one["connection_bytes"] / 1024),
    Column("per channel", ".1f", lambda one: one["channel_bytes"] / 1024),
    Column("per consumer", ".1f", lambda one: one["consumer_bytes"] / 1024),
    Column("memory of all nodes, MiB", ".0f", lambda one: one["nodes_bytes"] / 2**20),
    Column("idle: cores of all nodes", ".3f", lambda one: one["idle_cores"]),
    Column("a message to each queue, ms", ".0f", lambda one: 1e3 * one["round_s"]),
]


def clients(plan: Plan) -> list[dict[str, Any]]:
    """Open connections, channels and consumers at each cluster in turn, and leave them idle."""
    found, notes = peers(plan.only)
    results = measured(plan, found, _one)
    title = f"{CONNECTIONS} connections, {CONNECTIONS * CHANNELS:,} channels and consumers"
    show(f"{title}, {QUEUES} durable quorum queues", table(results, COLUMNS), notes)
    return results


def _resident(peer: Peer) -> int:
    time.sleep(SETTLE_S)
    return sum(map(resident_bytes, peer.pids()))


def _one(peer: Peer) -> dict[str, Any]:
    opened: list[Any] = []
    try:
        return _measure(peer, opened)
    finally:
        for connection in opened:
            connection.close()


def _measure(peer: Peer, opened: list[Any]) -> dict[str, Any]:
    import pika

    targets = [target.rsplit(":", 1) for target in peer.targets().split(",")]
    first = pika.BlockingConnection(pika.ConnectionParameters(targets[0][0], int(targets[0][1])))
    opened.append(first)
    names = [f"clients-{number}" for number in range(QUEUES)]
    control = first.channel()
    for name in names:
        control.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
    at_first = _resident(peer)
    began = time.monotonic()
    for number in range(CONNECTIONS):
        host, port = targets[number % NODES]
        opened.append(
            pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))
        )
    connected_s = time.monotonic() - began
    connected = _resident(peer)
    began = time.monotonic()
    channels = [connection.channel() for connection in opened[1:] for _ in range(CHANNELS)]
    channels_s = time.monotonic() - began
    with_channels = _resident(peer)
    got: list[str] = []
    began = time.monotonic()
    for number, channel in enumerate(channels):
        _consume(channel, names[number % QUEUES], got)
    consumers_s = time.monotonic() - began
    consuming = _resident(peer)
    meter = Meter(peer.pids())
    time.sleep(IDLE_S)
    idle = meter.spent()
    return {
        "connections_per_s": CONNECTIONS / connected_s,
        "channels_per_s": len(channels) / channels_s,
        "consumers_per_s": len(channels) / consumers_s,
        "connection_bytes": (connected - at_first) / CONNECTIONS,
        "channel_bytes": (with_channels - connected) / len(channels),
        "consumer_bytes": (consuming - with_channels) / len(channels),
        "nodes_bytes": consuming,
        "idle_cores": sum(idle.cores),
        "idle_others": idle.others,
        "round_s": _round(control, names, opened[1:], got),
    }


def _consume(channel: Any, queue: str, got: list[str]) -> None:
    def on_message(at: Any, method: Any, _properties: Any, _body: bytes) -> None:
        got.append(queue)
        at.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=PREFETCH)
    channel.basic_consume(queue, on_message)


def _round(control: Any, names: list[str], consuming: Sequence[Any], got: list[str]) -> float:
    """Return how many seconds it takes until each queue's message was consumed, once."""
    began = time.monotonic()
    for name in names:
        control.basic_publish("", name, b"a message")
    while len(got) < len(names):
        assert time.monotonic() - began < ANSWER_S, f"{len(got)} of {len(names)} messages came"
        for connection in consuming:
            connection.process_data_events(0)
    took = time.monotonic() - began
    assert sorted(got) == sorted(names), "a message came twice"
    return took
