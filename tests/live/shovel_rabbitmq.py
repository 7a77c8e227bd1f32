"""Shovels and a federated queue between a RabbitMQ and Warren, with nodes and processes killed.

    python3 build.py shovel [MESSAGES]

Needs the RabbitMQ of the system, or of RMQ_ROOT; from 4.0 on with all pairs of AMQP 0.9.1 and 1.0.
Counts messages by their bodies, and prints how many a second a shovel and a link move.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from itertools import product
from typing import Any, TypeAlias

import pika

from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import Broker, eventually
from live.shovels import worker_pids
from warren.admin import Admin
from warren.errors import WarrenError
from warren.local import LocalCluster
from warren_wire.links.uris import AMQP091, AMQP10

Protocols: TypeAlias = tuple[str, str]
"""Of the source and of the destination."""

MESSAGES = 20_000
PREFETCH = 500
TRANSACTION = 5_000
LONG_S = 600.0
IDLE_S = 2.0
"""Without a message for so long a queue counts as empty."""


def fill(broker: Broker, queue: str, count: int, node: int = 0) -> list[bytes]:
    """Publish messages with bodies of their own, in transactions that RabbitMQ accepts."""
    bodies = [f"{queue} {i}".encode() for i in range(count)]
    with broker.connect(node) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.tx_select()
        for number, body in enumerate(bodies):
            if number % TRANSACTION == 0:
                channel.tx_commit()
            channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))
        channel.tx_commit()
    return bodies


def taken(broker: Broker, queue: str, node: int = 0) -> list[bytes]:
    """The bodies of all messages, taken from the queue."""
    found = []
    with broker.connect(node) as connection:
        channel = connection.channel()
        messages: Any = channel.consume(queue, auto_ack=True, inactivity_timeout=IDLE_S)
        for method, _, body in messages:
            if method is None:
                break
            found.append(body)
    return found


def ends(source: tuple[str, str, str], target: tuple[str, str, str], **more: Any) -> dict[str, Any]:
    """A shovel's value; each end: protocol, URI, queue."""
    value: dict[str, Any] = {"src-prefetch-count": PREFETCH, **more}
    for side, (protocol, uri, queue) in (("src", source), ("dest", target)):
        value |= {f"{side}-uri": uri, f"{side}-protocol": protocol}
        if protocol == AMQP10:
            value[f"{side}-address"] = f"/queues/{queue}"
        else:
            value[f"{side}-queue"] = queue
    return value


def left(broker: Broker, queue: str) -> int:
    """Messages that are ready in a queue."""
    with broker.connect() as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


def into_warren(
    rabbitmq: Broker, warren: Broker, admin: Admin, count: int, protocols: Protocols
) -> None:
    """Shovel from RabbitMQ; kill -9 the node that runs the shovel midway."""
    bodies = fill(rabbitmq, "there", count)
    admin.queues.declare("here")
    source, target = protocols
    admin.parameters.put(
        "shovel", "/", "in", ends((source, rabbitmq.uri, "there"), (target, "amqp://", "here"))
    )
    eventually(lambda: admin.queues.get("here").messages > count // 10 or None, "it is under way")
    owner = admin.shovels.get("/", "in").node
    killed_at = admin.queues.get("here").messages
    warren.cluster.kill(owner)

    def moved() -> bool | None:
        remaining = left(rabbitmq, "there")
        try:
            shovel = admin.shovels.get("/", "in")
        except WarrenError:
            return None
        goes_on = shovel.node != owner and shovel.state == "running" and not shovel.pending
        return (goes_on and not remaining) or None

    eventually(moved, "another node moves the rest", LONG_S)
    admin.shovels.delete("/", "in")
    found = taken(warren, "here", living(warren, owner))
    assert set(found) == set(bodies), f"{len(set(bodies) - set(found))} messages are lost"
    assert len(found) - count <= PREFETCH, f"{len(found) - count} messages came twice"
    print(f"into Warren, {source} to {target}: {count} messages, {owner} killed at {killed_at}:")
    print(f"  none lost, {len(found) - count} came twice")
    warren.cluster.restart(owner)


def living(warren: Broker, dead: str) -> int:
    """The number of a node that runs."""
    return next(i for i, node in enumerate(warren.cluster.nodes) if node.name != dead)


def into_rabbitmq(
    rabbitmq: Broker, warren: Broker, admin: Admin, count: int, protocols: Protocols
) -> None:
    """Shovel to RabbitMQ as many messages as the queue has."""
    bodies = fill(warren, "home", count)
    source, target = protocols
    with rabbitmq.connect() as connection:
        connection.channel().queue_declare("back", durable=True)
    value = ends((source, "amqp://", "home"), (target, rabbitmq.uri, "back"))
    began = time.monotonic()
    admin.parameters.put("shovel", "/", "out", {**value, "src-delete-after": count})
    eventually(lambda: not admin.shovels.list() or None, "everything is moved", LONG_S)
    rate = count / (time.monotonic() - began)
    found = taken(rabbitmq, "back")
    assert sorted(found) == sorted(bodies), f"{len(found)} of {count} messages arrived"
    print(f"into RabbitMQ, {source} to {target}: {count} messages, each once,")
    print(f"  {rate:,.0f} per second with the start")


def with_kills(
    peer: OneRabbitMQ,
    rabbitmq: Broker,
    warren: Broker,
    admin: Admin,
    count: int,
    protocols: Protocols,
) -> None:
    """Shovel to RabbitMQ; kill -9 the shovel's process, then the RabbitMQ, midway."""
    bodies = fill(warren, "home", count)
    source, target = protocols
    with rabbitmq.connect() as connection:
        connection.channel().queue_declare("back", durable=True)
    admin.parameters.put(
        "shovel", "/", "out", ends((source, "amqp://", "home"), (target, rabbitmq.uri, "back"))
    )

    def moved(least: int) -> bool | None:
        return left(warren, "home") <= count - least or None

    eventually(lambda: moved(count // 5), "it is under way", LONG_S)
    node = admin.shovels.get("/", "out").node
    names = [one.name for one in warren.cluster.nodes]
    (worker,) = worker_pids(warren.cluster.pid(names.index(node)))
    os.kill(worker, signal.SIGKILL)
    eventually(lambda: moved(count // 2), "another process goes on", LONG_S)
    peer.kill()
    peer.restart()
    eventually(lambda: moved(count), "it goes on at the RabbitMQ that is back", LONG_S)
    eventually(
        lambda: not admin.shovels.get("/", "out").pending or None, "all is confirmed", LONG_S
    )
    admin.shovels.delete("/", "out")
    found = taken(rabbitmq, "back")
    assert set(found) == set(bodies), f"{len(set(bodies) - set(found))} messages are lost"
    assert len(found) - count <= 2 * PREFETCH, f"{len(found) - count} messages came twice"
    print(f"into RabbitMQ, {source} to {target}: {count} messages, the shovel's process and the")
    print(f"  RabbitMQ killed: none lost, {len(found) - count} came twice")


def federated(rabbitmq: Broker, warren: Broker, admin: Admin, count: int) -> None:
    """Consume a federated queue; kill -9 the node that leads it and runs its link midway."""
    bodies = fill(rabbitmq, "balanced", count)
    admin.queues.declare("balanced", arguments={"x-queue-type": "quorum"})
    upstream = {"uri": rabbitmq.uri, "prefetch-count": PREFETCH, "reconnect-delay": 1}
    admin.parameters.put("federation-upstream", "/", "far", upstream)
    policy = {"federation-upstream": "far"}
    admin.policies.put("/", "balanced", "^balanced$", policy, apply_to="queues")
    link = eventually(lambda: next(iter(admin.federation.links()), None), "there is a link")
    found: list[bytes] = []
    first = rate = 0.0
    with warren.connect(living(warren, link.node)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=PREFETCH)
        messages: Any = channel.consume("balanced", inactivity_timeout=30)
        for method, _, body in messages:
            assert method is not None, f"{len(set(found))} of {count} messages have come"
            found.append(body)
            channel.basic_ack(method.delivery_tag)
            first = first or time.monotonic()
            if len(found) == count // 4:
                rate = len(found) / (time.monotonic() - first)
                warren.cluster.kill(link.node)
            if len(set(found)) == count:
                break
    moved = eventually(lambda: next(iter(admin.federation.links()), None), "there is a link")
    assert set(found) == set(bodies) and moved.node != link.node
    print(f"federated queue: {count} messages, leader {link.node} killed: none lost,")
    print(f"  {len(found) - count} came twice, the link is on {moved.node},")
    print(f"  {rate:,.0f} per second before the kill, with one consumer that acknowledges each")
    warren.cluster.restart(link.node)


def main(arguments: list[str]) -> int:
    """Run both ways; the exit code."""
    count = int(arguments[0]) if arguments else MESSAGES
    with OneRabbitMQ() as peer, LocalCluster(nodes=3) as cluster, cluster.connect() as connection:
        rabbitmq = Broker((f"amqp://guest:guest@{peer.host}:{peer.port}/%2F",))
        uris = tuple(f"amqp://guest:guest@{host}/%2F" for host in cluster.addresses)
        print(peer.name)
        admin = Admin(connection)
        # RabbitMQ has AMQP 1.0 by itself since 4.0.
        both = (AMQP091, AMQP10) if int(peer.name.split()[1].split(".")[0]) >= 4 else (AMQP091,)
        for protocols in product(both, both):
            into_warren(rabbitmq, Broker(uris, cluster), admin, count, protocols)
            into_rabbitmq(rabbitmq, Broker(uris, cluster), admin, count, protocols)
        for protocol in both:
            pair = (protocol, protocol)
            with_kills(peer, rabbitmq, Broker(uris, cluster), admin, count, pair)
        federated(rabbitmq, Broker(uris, cluster), admin, count)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
