"""Exchanges that keep messages, on a real cluster of which nodes are killed and restarted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from live.conftest import eventually
from live.load import connect
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import NotFound
from warren.local import LocalCluster

pytestmark = pytest.mark.live
HISTORY = {"x-recent-history-length": 5}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of the test's own: nodes die here."""
    with LocalCluster(nodes=3, directory=tmp_path) as made:
        yield made


def taken(channel: Any, queue: str, count: int) -> list[Any]:
    """Take `count` messages: (body, headers)."""
    found: list[Any] = []

    def all_there() -> bool:
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append((got[2].decode(), got[1].headers))
        return len(found) >= count

    eventually(all_there, f"{count} messages in {queue}; there are {found}")
    return found


def bodies(channel: Any, queue: str, count: int) -> list[str]:
    """Take `count` messages: their bodies."""
    return [body for body, _ in taken(channel, queue, count)]


def test_a_recent_history_outlives_its_leader_and_all_nodes(cluster: LocalCluster) -> None:
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("h", "x-recent-history", durable=True, arguments=HISTORY)
        for number in range(8):
            channel.basic_publish("h", "any", str(number).encode())
        hidden = pika.BasicProperties(headers={"x-recent-history-no-store": True})
        channel.basic_publish("h", "any", b"not kept", hidden)
        with pytest.raises(UnroutableError):
            channel.basic_publish("h", "any", b"8", mandatory=True)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "h")
        assert bodies(channel, "q", 5) == ["4", "5", "6", "7", "8"]
        channel.basic_publish("h", "any", b"9", hidden, mandatory=True)
        assert bodies(channel, "q", 1) == ["9"]
        for use in (
            lambda one: one.basic_get("amq.history.h"),
            lambda one: one.queue_delete("amq.history.h"),
            lambda one: one.queue_bind("amq.history.h", "amq.fanout"),
            lambda one: one.queue_declare("amq.history.h", durable=True),
        ):
            with pytest.raises(ChannelClosedByBroker, match=r"\(403, .ACCESS_REFUSED"):
                use(connection.channel())

    killed = cluster.leader_of("amq.history.h")
    cluster.kill(killed)
    with connect(cluster, (killed + 1) % 3) as connection:
        channel = connection.channel()
        channel.queue_declare("r", durable=True)
        channel.queue_bind("r", "h")
        assert bodies(channel, "r", 5) == ["4", "5", "6", "7", "8"]
    cluster.start(killed)
    for node in range(3):
        cluster.kill(node)
    cluster.start()
    with connect(cluster, 1) as connection:
        channel = connection.channel()
        channel.queue_declare("s", durable=True)
        channel.queue_bind("s", "h")
        assert bodies(channel, "s", 5) == ["4", "5", "6", "7", "8"]
        channel.exchange_delete("h")


def delayed(body: str, delay_ms: int) -> dict[str, Any]:
    """Arguments of a delayed publish."""
    properties = pika.BasicProperties(headers={"x-delay": delay_ms}, delivery_mode=2)
    return {"routing_key": "key", "body": body.encode(), "properties": properties}


def check_operator(admin: Admin) -> None:
    """List what waits; drop the last message, and see that its id is used up."""
    store = "amq.delayed.d"
    found = admin.delayed_messages(store)
    times = [one.ready_at for one in found]
    assert len(found) > 50 and times == sorted(times)
    assert found[-1].ready_at - found[0].ready_at > 1 << 31
    assert {(one.exchange, one.routing_key) for one in found} == {("d", "key")}
    assert len(admin.delayed_messages(store, 2)) == 2
    admin.drop_delayed(store, found[-1].id)
    for again in (admin.drop_delayed, admin.retry_delayed_message):
        with pytest.raises(NotFound, match="no delayed message"):
            again(store, found[-1].id)
    second = admin.delayed_messages(store)
    assert found[-1].id not in [one.id for one in second] and len(second) >= 50


def test_delayed_messages_outlive_their_leader_and_all_nodes(cluster: LocalCluster) -> None:
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(
            "d", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "d", "key")
        channel.basic_publish("d", **delayed("second", 4_000))
        channel.basic_publish("d", **delayed("first", 3_000))
        channel.basic_publish("d", **delayed("at once", 0))
        channel.basic_publish("d", **delayed("negative", -5))
        for number in range(50):
            channel.basic_publish("d", **delayed(str(number), 22_000))
        with pytest.raises(UnroutableError):  # it is delayed all the same
            channel.basic_publish("d", **delayed("mandatory", 2_000), mandatory=True)
        channel.basic_publish("d", **delayed("far", (1 << 32) - 1))
        with Connection(cluster.uri) as operator:
            check_operator(Admin(operator))
        channel.queue_declare("bound later", durable=True)
        channel.queue_bind("bound later", "d", "key")
        found = taken(channel, "q", 5)
        expected = [
            ("at once", 0),
            ("negative", -5),
            ("mandatory", -2_000),
            ("first", -3_000),
            ("second", -4_000),
        ]
        assert [(body, headers["x-delay"]) for body, headers in found] == expected
        late = ["mandatory", "first", "second"]
        assert bodies(channel, "bound later", 3) == late
    killed = cluster.leader_of("amq.delayed.d")
    cluster.kill(killed)
    with connect(cluster, (killed + 1) % 3) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("d", **delayed("without a node", 500))
        assert bodies(channel, "q", 1) == ["without a node"]
    for node in range(3):
        cluster.kill(node)
    cluster.start()
    with connect(cluster, killed) as connection:
        channel = connection.channel()
        got = bodies(channel, "q", 50)
        assert list(dict.fromkeys(got)) == [str(number) for number in range(50)]
        assert len(got) < 70
        channel.exchange_delete("d")
