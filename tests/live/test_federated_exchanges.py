"""Federated exchanges between clusters: bindings, circles, links and nodes that are killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from connector.amqp.rabbitmq import OneRabbitMQ
from live.conftest import Broker, eventually
from live.test_federated_queues import command
from live.test_shovel import worker_pids
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster
from warren_broker.transfers.shovel.worker import DELAY_S_MAX

pytestmark = pytest.mark.live
IDLE_S = 1.0
"""Without a message for so long nothing more comes."""
PATIENCE_S = 2 * DELAY_S_MAX
"""A link that has failed again and again waits half of it."""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, ...]]:
    """Three clusters of one node, with names of their own."""
    directory = tmp_path_factory.mktemp("exchanges")
    made = [
        LocalCluster(nodes=1, directory=directory / name, settings={"cluster": name})
        for name in ("one", "two", "three")
    ]
    try:
        for each in made:
            each.start()
        yield tuple(
            Broker(tuple(f"amqp://guest:guest@{host}/%2F" for host in each.addresses), each)
            for each in made
        )
    finally:
        for each in made:
            each.stop()


def exchange(broker: Broker, name: str, kind: str = "topic") -> None:
    """Declare an exchange."""
    with broker.connect() as connection:
        connection.channel().exchange_declare(name, kind, durable=True)


def queue(broker: Broker, name: str, source: str, *keys: str) -> None:
    """Declare a queue and bind it."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        for key in keys:
            channel.queue_bind(name, source, key)


def federate(broker: Broker, upstream: str, name: str, *uris: str, **more: Any) -> None:
    """Make an exchange federated."""
    value = json.dumps({"uri": list(uris), "reconnect-delay": 1, **more})
    command(broker, "parameters", "set", "federation-upstream", upstream, value)
    policy = json.dumps({"federation-upstream-pattern": f"^{name}-"})
    applied = ("--apply-to", "exchanges")
    command(broker, "policies", "set", f"fed-{name}", f"^{name}$", policy, *applied)


def links(broker: Broker, name: str) -> list[Any]:
    """The links of an exchange."""
    assert broker.cluster is not None
    with Connection(broker.cluster.address) as connection:
        return [one for one in Admin(connection).federation.links() if one.dest_exchange == name]


def runs(broker: Broker, name: str, count: int = 1) -> None:
    """Wait until all links of an exchange run."""

    def running() -> bool:
        return [one.state for one in links(broker, name)] == ["running"] * count

    eventually(running, f"{count} links of {name} run")


def publish(broker: Broker, name: str, *keys: str, **properties: Any) -> None:
    """Publish a message with each key, which is its body, too; with confirms."""
    with broker.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for key in keys:
            channel.basic_publish(name, key, key.encode(), pika.BasicProperties(**properties))


def taken(broker: Broker, name: str, at_least: int) -> list[tuple[Any, str]]:
    """Messages of a queue: wait for so many, then until no more come."""
    found: list[tuple[Any, str]] = []
    with broker.connect() as connection:
        channel = connection.channel()
        while True:
            patience_s = PATIENCE_S if len(found) < at_least else IDLE_S
            arriving: Any = channel.consume(name, inactivity_timeout=patience_s)
            for method, properties, body in arriving:
                if method is None:
                    break
                found.append((properties, body.decode()))
                channel.basic_ack(method.delivery_tag)
                if len(found) == at_least:
                    break
            channel.cancel()
            if len(found) != at_least or patience_s == IDLE_S:
                assert len(found) >= at_least, f"{len(found)} of {at_least} have come"
                return found


def bindings(broker: Broker, name: str) -> list[str]:
    """Routing keys with which links are bound to an exchange."""
    assert broker.cluster is not None
    with Connection(broker.cluster.address) as connection:
        found = Admin(connection).bindings.list(source=name)
    return sorted(one["binding_key"] for one in found if not one.get("destination_queue"))


def queues(broker: Broker) -> list[str]:
    """Names of the queues of links."""
    assert broker.cluster is not None
    with Connection(broker.cluster.address) as connection:
        return [one.name for one in Admin(connection).queues.list("^federation: ")]


def test_what_is_published_upstream_comes_as_the_exchange_is_bound(
    three: tuple[Broker, ...],
) -> None:
    up, down, _ = three
    exchange(down, "moves")
    queue(down, "moves", "moves", "a.*")
    federate(down, "moves-up", "moves", *up.uris)
    runs(down, "moves")  # it has made the exchange upstream, of the same type
    publish(up, "moves", "a.1", "b.1", "a.2", priority=3, headers={"k": 1}, user_id="guest")
    found = taken(down, "moves", 2)
    assert [body for _, body in found] == ["a.1", "a.2"]
    properties = found[0][0]
    (hop,) = properties.headers.pop("x-received-from")
    assert (properties.priority, properties.user_id, properties.headers) == (3, None, {"k": 1})
    assert (hop["cluster-name"], hop["exchange"], hop["vhost"]) == ("one", "moves", "/")
    assert "guest:" not in hop["uri"]
    # Bindings that come and go are made and removed upstream.
    queue(down, "moves", "moves", "b.#")
    eventually(lambda: bindings(up, "moves") == ["a.*", "b.#"], "the new binding is upstream")
    with down.connect() as connection:
        connection.channel().queue_unbind("moves", "moves", "a.*")
    eventually(lambda: bindings(up, "moves") == ["b.#"], "the old binding is gone")
    publish(up, "moves", "a.3", "b.3.c")
    assert [body for _, body in taken(down, "moves", 1)] == ["b.3.c"]
    assert "moves-up" in command(down, "federation", "status")


def test_bindings_change_and_messages_wait_while_the_link_is_down(
    three: tuple[Broker, ...],
) -> None:
    up, down, _ = three
    assert down.cluster is not None
    exchange(down, "waits")
    queue(down, "waits", "waits", "old")
    federate(down, "waits-up", "waits", *up.uris)
    runs(down, "waits")
    down.cluster.kill(0)
    publish(up, "waits", *["old"] * 200)
    down.cluster.start(0)
    with down.connect() as connection:
        channel = connection.channel()
        channel.queue_unbind("waits", "waits", "old")
        channel.queue_bind("waits", "waits", "new")
        # What came upstream before is routed here as this exchange is bound now: nowhere.
        channel.queue_declare("all", durable=True)
        channel.queue_bind("all", "waits", "#")
    runs(down, "waits")
    eventually(lambda: bindings(up, "waits") == ["#", "new"], "the bindings are those of now")
    publish(up, "waits", "new", "old")
    # "old" of before, perhaps in part before "all" was bound, and both of now.
    every: list[str] = []
    while "new" not in every or every[-1] != "old":
        every += [body for _, body in taken(down, "all", 1)]
    assert every.count("new") == 1
    assert [body for _, body in taken(down, "waits", 1)] == ["new"]


@pytest.mark.long
def test_a_link_and_its_node_that_are_killed_lose_nothing(three: tuple[Broker, ...]) -> None:
    up, down, _ = three
    assert up.cluster is not None and down.cluster is not None
    exchange(down, "killed", "fanout")
    queue(down, "killed", "killed", "")
    federate(down, "killed-up", "killed", *up.uris, **{"prefetch-count": 50})
    runs(down, "killed")
    keys = [f"m{i}" for i in range(1_500)]
    publish(up, "killed", *keys[:500])
    for pid in worker_pids(down.cluster.pid(0)):
        os.kill(pid, signal.SIGKILL)
    publish(up, "killed", *keys[500:1000])
    down.cluster.kill(0)
    publish(up, "killed", *keys[1000:])
    up.cluster.kill(0)
    for each in (up.cluster, down.cluster):
        each.start(0)
    found = {body for _, body in taken(down, "killed", len(keys))}
    while missing := set(keys) - found:
        found |= {body for _, body in taken(down, "killed", 1)}
        assert len(missing) > len(set(keys) - found)


@pytest.mark.parametrize("max_hops", [1, pytest.param(2, marks=pytest.mark.long), 5])
def test_a_circle_of_three_brings_each_message_once_to_each(
    three: tuple[Broker, ...], max_hops: int
) -> None:
    name = f"circle{max_hops}"
    for broker in three:
        exchange(broker, name)
        queue(broker, name, name, "#")
    for i, broker in enumerate(three):
        federate(broker, f"{name}-up", name, *three[i - 1].uris, **{"max-hops": max_hops})
    for broker in three:
        runs(broker, name)
    reach = min(max_hops, 2)
    for i, broker in enumerate(three):  # bindings have come as far as they go
        expected = ["#"] * reach
        eventually(lambda b=broker, e=expected: bindings(b, name) == e, f"bindings of {i}")
    for i, broker in enumerate(three):
        publish(broker, name, f"from.{i}")
    for i, broker in enumerate(three):
        came = sorted(body for _, body in taken(broker, name, 1 + reach))
        assert came == sorted(f"from.{(i - hop) % 3}" for hop in range(1 + reach))


def test_two_exchanges_each_upstream_of_the_other_pass_nothing_to_and_fro(
    three: tuple[Broker, ...],
) -> None:
    one, other, _ = three
    for broker, upstream in ((one, other), (other, one)):
        exchange(broker, "both", "direct")
        queue(broker, "both", "both", "k")
        federate(broker, "both-up", "both", *upstream.uris, **{"max-hops": 10})
    for broker in (one, other):
        runs(broker, "both")
    for broker in (one, other):
        publish(broker, "both", *["k"] * 20)
    for broker in (one, other):
        assert len(taken(broker, "both", 40)) == 40


@pytest.mark.specification(
    "federated-queues: It is possible to bind a federated queue to a federated exchange"
)
def test_a_federated_queue_bound_to_a_federated_exchange_gets_messages_both_ways(
    three: tuple[Broker, ...],
) -> None:
    up, down, _ = three
    for broker in (up, down):
        exchange(broker, "x-mixed")
        queue(broker, "q-mixed", "x-mixed")
    queue(down, "q-mixed", "x-mixed", "k.*")
    value = json.dumps({"uri": up.uris[0], "reconnect-delay": 1})
    command(down, "parameters", "set", "federation-upstream", "both-kinds", value)
    policy = json.dumps({"federation-upstream": "both-kinds"})
    command(down, "policies", "set", "all", "^[xq]-mixed$", policy, "--apply-to", "all")
    runs(down, "x-mixed")
    publish(up, "x-mixed", "k.1", "other")
    publish(up, "", "q-mixed")
    assert sorted(body for _, body in taken(down, "q-mixed", 2)) == ["k.1", "q-mixed"]


def test_a_link_that_is_not_wanted_any_more_leaves_nothing_unless_it_is_to(
    three: tuple[Broker, ...],
) -> None:
    up, down, _ = three
    for name, more in (("goes", {}), ("stays", {"resource-cleanup-mode": "never"})):
        exchange(down, name)
        federate(down, f"{name}-up", name, *up.uris, **more)
        runs(down, name)
    at = {name: f"federation: {name} -> two:/:{name}" for name in ("goes", "stays")}
    assert set(at.values()) <= set(queues(up))
    for name in at:
        command(down, "policies", "clear", f"fed-{name}")
    eventually(lambda: at["goes"] not in queues(up), "its queue upstream is deleted")
    assert not links(down, "goes") and at["stays"] in queues(up)


def test_a_cluster_of_the_same_name_is_refused_in_words(
    three: tuple[Broker, ...], tmp_path: Path
) -> None:
    _, down, _ = three
    with LocalCluster(nodes=1, directory=tmp_path / "c", settings={"cluster": "two"}) as same:
        exchange(down, "named")
        federate(down, "named-up", "named", f"amqp://guest:guest@{same.addresses[0]}/%2F")

        def refused() -> str | None:
            found = links(down, "named")
            return (found[0].reason or None) if found else None

        assert "clusters that federate exchanges need different names" in eventually(
            refused, "it is refused"
        )


@pytest.mark.long
def test_a_circle_of_warren_and_rabbitmq_brings_each_message_once_to_each(
    three: tuple[Broker, ...],
) -> None:
    """RabbitMQ's links and these have each other's exchanges as upstreams."""
    _, own, _ = three
    with OneRabbitMQ("", ("rabbitmq_federation",)) as peer:
        rabbitmq = Broker((f"amqp://guest:guest@{peer.host}:{peer.port}/%2F",), None)
        for broker in (own, rabbitmq):
            exchange(broker, "mixed")
            queue(broker, "mixed", "mixed", "a.#")
        federate(own, "mixed-up", "mixed", *rabbitmq.uris, **{"max-hops": 5})
        value = {"uri": own.uris[0], "max-hops": 5, "reconnect-delay": 1}
        peer.control("set_parameter", "federation-upstream", "up", json.dumps(value))
        policy = json.dumps({"federation-upstream": "up"})
        peer.control("set_policy", "--apply-to", "exchanges", "p", "^mixed$", policy)
        runs(own, "mixed")
        eventually(lambda: "a.#" in bindings(own, "mixed"), "RabbitMQ's link is bound here")
        publish(rabbitmq, "mixed", "a.1", "b.1", "a.2")
        publish(own, "mixed", "a.3", "b.3", "a.4")
        for broker in (own, rabbitmq):
            found = taken(broker, "mixed", 4)
            assert sorted(body for _, body in found) == ["a.1", "a.2", "a.3", "a.4"]
        (hop,) = next(
            properties.headers["x-received-from"] for properties, body in found if body == "a.3"
        )
        assert (hop["cluster-name"], hop["exchange"]) == ("two", "mixed")
        # A binding that is added is made in RabbitMQ.
        queue(own, "more", "mixed", "b.#")
        eventually(lambda: came(rabbitmq, own, "b.2"), "the new binding is at the upstream")


def came(upstream: Broker, down: Broker, key: str) -> bool:
    """Publish; whether it has come."""
    publish(upstream, "mixed", key)
    with down.connect() as connection:
        return connection.channel().basic_get("more", auto_ack=True)[0] is not None
