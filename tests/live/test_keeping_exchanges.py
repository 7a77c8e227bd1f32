"""Exchanges that keep messages, on a real cluster of which nodes are killed and restarted."""

from __future__ import annotations

import time
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
    found = admin.delayed.list(store)
    times = [one.ready_at for one in found]
    assert len(found) > 50 and times == sorted(times)
    assert found[-1].ready_at - found[0].ready_at > 1 << 31
    assert {(one.exchange, one.routing_key) for one in found} == {("d", "key")}
    assert len(admin.delayed.list(store, 2)) == 2
    admin.delayed.end(store, found[-1].id, drop=True)
    for drop in (True, False):
        with pytest.raises(NotFound, match="no delayed message"):
            admin.delayed.end(store, found[-1].id, drop)
    second = admin.delayed.list(store)
    assert found[-1].id not in [one.id for one in second] and len(second) >= 50


class DelayedPublisher:
    """Publishes to the exchange `d`, and remembers between which times each message is due."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._due: dict[str, tuple[float, float]] = {}

    def publish(self, body: str, delay_ms: int, **more: Any) -> None:
        """Publish with a delay."""
        before = time.monotonic()
        try:
            self._channel.basic_publish("d", **delayed(body, delay_ms), **more)
        finally:
            delay_s = max(0, delay_ms) / 1000
            self._due[body] = before + delay_s, time.monotonic() + delay_s

    def due_after(self, moment: float) -> set[str]:
        """Return the messages that are certainly due after a moment."""
        return {body for body, (earliest, _) in self._due.items() if earliest > moment}

    def check_order(self, got: list[str]) -> None:
        """Check that no message came before one that was due earlier."""
        for at, body in enumerate(got):
            late = [other for other in got[at + 1 :] if self._due[other][1] < self._due[body][0]]
            assert not late, f"{body} came before {late}"


def test_delayed_messages_outlive_their_leader_and_all_nodes(cluster: LocalCluster) -> None:
    """The times are the publisher's own: the order is known however slow the machine is."""
    delays = {"second": 6_000, "first": 4_000, "at once": 0, "negative": -5, "mandatory": 5_000}
    numbers = [str(number) for number in range(50)]
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare(
            "d", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "d", "key")
        publisher = DelayedPublisher(channel)
        for body in ("second", "first", "at once", "negative"):
            publisher.publish(body, delays[body])
        for body in numbers:
            publisher.publish(body, 22_000)
        with pytest.raises(UnroutableError):  # it is delayed all the same
            publisher.publish("mandatory", delays["mandatory"], mandatory=True)
        channel.basic_publish("d", **delayed("far", (1 << 32) - 1))
        with Connection(cluster.uri) as operator:
            check_operator(Admin(operator))
        channel.queue_declare("bound later", durable=True)
        channel.queue_bind("bound later", "d", "key")
        later = publisher.due_after(time.monotonic()) & {*delays}
        found = taken(channel, "q", 5)
        publisher.check_order([body for body, _ in found])
        headers = {body: headers["x-delay"] for body, headers in found if body in delays}
        assert headers == {body: min(delay, -delay) for body, delay in delays.items()}
        got = bodies(channel, "bound later", len(later))
        publisher.check_order(got)
        assert later <= {*got}
    killed = cluster.leader_of("amq.delayed.d")
    cluster.kill(killed)
    with connect(cluster, (killed + 1) % 3) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("d", **delayed("without a node", 500))
        while "without a node" not in [body for body, _ in found]:
            found += taken(channel, "q", 1)
    for node in range(3):
        cluster.kill(node)
    cluster.start()
    with connect(cluster, killed) as connection:
        channel = connection.channel()
        got = [body for body, _ in found if body in numbers]
        while not {*numbers} <= {*got}:
            got += bodies(channel, "q", 1)
        assert list(dict.fromkeys(got)) == numbers
        assert len(got) < 70
        channel.exchange_delete("d")
