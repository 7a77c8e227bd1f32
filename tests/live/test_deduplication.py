"""Publisher de-duplication as AMQP 0.9.1 clients, a Producer and an operator see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPError, ChannelClosedByBroker, NackError

from live.conftest import Broker, eventually
from live.load import connect, drain
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import Conflict, PeerError
from warren.local import LocalCluster
from warren.producer import Producer

pytestmark = pytest.mark.live
ASKS = {"x-queue-type": "quorum", "x-deduplication": True}


def with_id(name: Any) -> pika.BasicProperties:
    """Properties with x-deduplication-id."""
    return pika.BasicProperties(headers={"x-deduplication-id": name}, delivery_mode=2)


def numbered(producer: str, number: int) -> pika.BasicProperties:
    """Properties with x-producer and x-sequence."""
    headers = {"x-producer": producer, "x-sequence": number}
    return pika.BasicProperties(headers=headers, delivery_mode=2)


def bodies(channel: Any, queue: str) -> list[bytes]:
    """Everything in the queue, taken."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


@pytest.mark.parametrize("form", ["id", "sequence"])
def test_the_window_ends_exactly(admin: Admin, channel: Any, queue_name: str, form: str) -> None:
    channel.queue_declare(queue_name, durable=True, arguments={**ASKS, "x-deduplication-window": 3})
    channel.confirm_delivery()
    for at in (0, 1, 2, 0, 2, 3, 1, 0, 2, 1):  # 3 ends the memory of 0; then 0 that of 1
        properties = with_id(f"m{at}") if form == "id" else numbered("p", at)
        channel.basic_publish("", queue_name, b"%d" % at, properties)
    assert bodies(channel, queue_name) == [b"0", b"1", b"2", b"3", b"0", b"1"]
    shown = admin.queues.get(queue_name)
    assert (shown.duplicates_dropped, shown.deduplication_ids) == (4, 3)


def test_text_and_bytes_are_one_id_and_other_types_are_none(
    admin: Admin, channel: Any, queue_name: str
) -> None:
    channel.queue_declare(queue_name, durable=True, arguments=ASKS)
    channel.confirm_delivery()
    for name in ("a", b"a", 5, 5, "", ""):
        channel.basic_publish("", queue_name, b"x", with_id(name))
    assert admin.queues.get(queue_name).duplicates_dropped == 1
    assert len(bodies(channel, queue_name)) == 5


def test_each_queue_decides_alone(admin: Admin, channel: Any, queue_name: str) -> None:
    exchange, other, late = f"{queue_name}.x", f"{queue_name}.other", f"{queue_name}.late"
    channel.exchange_declare(exchange, "fanout", arguments={"alternate-exchange": "amq.direct"})
    channel.queue_declare(queue_name, durable=True, arguments=ASKS)
    channel.queue_declare(other, durable=True)
    channel.queue_declare(late, durable=True, arguments=ASKS)
    for name in (queue_name, other):
        channel.queue_bind(name, exchange)
    channel.confirm_delivery()
    for _ in range(2):
        channel.basic_publish(exchange, "", b"x", with_id("a"), mandatory=True)
    channel.queue_bind(late, exchange)
    channel.basic_publish(exchange, "", b"x", with_id("a"), mandatory=True)
    assert [len(bodies(channel, name)) for name in (queue_name, other, late)] == [1, 3, 1]
    for name in (queue_name, other, late):
        channel.queue_unbind(name, exchange)
    channel.queue_bind(queue_name, "amq.direct", "k")
    channel.basic_publish(exchange, "k", b"x", with_id("a"), mandatory=True)
    assert bodies(channel, queue_name) == [], "through the alternate exchange, too"
    channel.queue_delete(other)
    channel.queue_delete(late)
    channel.exchange_delete(exchange)


def test_transactions_and_dead_letters(broker: Broker, queue_name: str) -> None:
    dead = f"{queue_name}.dead"
    with broker.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(queue_name, durable=True, arguments=ASKS)
        back = {**ASKS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue_name}
        channel.queue_declare(dead, durable=True, arguments={**back, "x-message-ttl": 50})
        channel.tx_select()
        for _ in range(2):
            channel.basic_publish("", queue_name, b"x", with_id("a"))
            channel.tx_commit()
        channel.basic_publish("", queue_name, b"x", with_id("b"))
        channel.tx_rollback()
        channel.basic_publish("", queue_name, b"x", with_id("b"))
        channel.tx_commit()
        assert len(bodies(channel, queue_name)) == 2
        channel.basic_publish("", dead, b"again", with_id("a"))
        channel.tx_commit()
        # Dropped as a duplicate of the one that was taken, it would be lost.
        got = eventually(lambda: bodies(channel, queue_name), "the message comes back")
        assert got == [b"again"]
        channel.queue_delete(dead)


def test_a_refused_message_may_be_published_again(channel: Any, queue_name: str) -> None:
    limit = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(queue_name, durable=True, arguments={**ASKS, **limit})
    channel.confirm_delivery()
    channel.basic_publish("", queue_name, b"a", with_id("a"))
    with pytest.raises(NackError):
        channel.basic_publish("", queue_name, b"b", with_id("b"))
    channel.basic_publish("", queue_name, b"a", with_id("a"))
    assert bodies(channel, queue_name) == [b"a"]
    channel.basic_publish("", queue_name, b"b", with_id("b"))
    assert bodies(channel, queue_name) == [b"b"]


def test_a_producers_blocks(admin: Admin, broker: Broker, channel: Any, queue_name: str) -> None:
    channel.queue_declare(queue_name, durable=True, arguments=ASKS)
    with Connection(broker.cluster.address) as connection:
        with Producer(connection) as producer:
            for at in (*range(200), *range(200)):
                headers = {"x-producer": "p", "x-sequence": at}
                producer.send(b"x" * 100, queue_name, headers=headers)
            producer.flush()
    shown = admin.queues.get(queue_name)
    assert (shown.messages_ready, shown.duplicates_dropped) == (200, 200)


def test_a_partly_taken_block_is_sent_again_without_duplicates(
    admin: Admin, broker: Broker, channel: Any, queue_name: str
) -> None:
    """A confirm is one of a whole block, so more may be there than it says, and never less."""
    limit: dict[str, Any] = {"x-max-length": 5, "x-overflow": "reject-publish"}
    channel.queue_declare(queue_name, durable=True, arguments={**ASKS, **limit})
    names = [f"{number}" for number in range(20)]
    confirmed, found = list[str](), list[bytes]()
    with Connection(broker.cluster.address) as connection:
        while len(confirmed) < len(names):
            producer = Producer(connection)
            said = {
                name: producer.send(name, queue_name, headers={"x-deduplication-id": name})
                for name in names
                if name not in confirmed
            }
            for name, confirm in said.items():
                try:
                    confirm.wait()
                    confirmed.append(name)
                except Conflict:
                    continue
            assert admin.queues.get(queue_name).messages_ready <= limit["x-max-length"]
            found += bodies(channel, queue_name)
            assert {*confirmed} <= {body.decode() for body in found}
    assert sorted(found) == sorted(name.encode() for name in names)


def test_a_policy_begins_and_ends_it(admin: Admin, channel: Any, queue_name: str) -> None:
    channel.queue_declare(queue_name, durable=True)
    channel.confirm_delivery()

    def dropped() -> bool:
        """Publish twice with a new id; whether the queue took one."""
        channel.queue_purge(queue_name)
        name = f"{dropped.__name__}{next(count)}"
        for _ in range(2):
            channel.basic_publish("", queue_name, b"x", with_id(name))
        return len(bodies(channel, queue_name)) == 1

    count = iter(range(1_000_000))
    assert not dropped()
    pattern = f"^{queue_name}$"
    admin.policies.put("/", "once", pattern, {"deduplication": True}, apply_to="queues")
    eventually(dropped, "the policy takes effect")
    admin.policies.delete("/", "once")
    eventually(lambda: not dropped(), "the policy ends")
    assert admin.queues.get(queue_name).deduplication_ids == 0
    for definition, text in (
        ({"deduplication": 1}, "1 is not a valid deduplication value"),
        ({"deduplication-window": 0}, "0 is not a valid deduplication window"),
        ({"deduplication-window": 1_000_001}, "1000001 is not a valid deduplication window"),
        ({"deduplication-ttl": 0}, "0 is not a valid deduplication ttl"),
    ):
        with pytest.raises(PeerError, match=text):
            admin.policies.put("/", "once", pattern, definition)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-deduplication": "true"},
        {"x-deduplication-window": 0},
        {"x-deduplication-window": 1_000_001},
        {"x-deduplication-ttl": 0},
        {"x-deduplication-ttl": "1h"},
    ],
    ids=str,
)
def test_bad_arguments_are_refused(broker: Broker, queue_name: str, arguments: Any) -> None:
    with broker.connect() as connection:
        (name,) = arguments
        with pytest.raises(ChannelClosedByBroker, match=rf"\(406, .*invalid arg .*{name}"):
            connection.channel().queue_declare(queue_name, durable=True, arguments=arguments)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of the test's own: nodes die here."""
    with LocalCluster(nodes=3, directory=tmp_path) as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("form", ["id", pytest.param("sequence", marks=pytest.mark.long)])
def test_what_is_sent_again_after_the_leaders_death_is_taken_once(
    cluster: LocalCluster, form: str
) -> None:
    queue = "once"
    with connect(cluster, 0) as connection:
        connection.channel().queue_declare(queue, durable=True, arguments=ASKS)
    leader = cluster.leader_of(queue)
    others = [at for at in range(3) if at != leader]

    def properties(at: int) -> pika.BasicProperties:
        return with_id(f"m{at}") if form == "id" else numbered("p", at)

    sent, killed, node = 0, False, leader
    while sent < 200:
        try:
            with connect(cluster, node) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                for at in range(max(0, sent - 20), 200):  # it does not know what was confirmed
                    channel.basic_publish("", queue, b"%d" % at, properties(at))
                    sent = max(sent, at + 1)
                    if sent == 100 and not killed:
                        killed = True
                        cluster.kill(leader)
        except (AMQPError, OSError):
            node = others[node % len(others)]
    assert killed
    cluster.start(leader)
    eventually(lambda: cluster.leader_of(queue) is not None, "somebody leads")
    with connect(cluster, others[0]) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for at in range(200):
            channel.basic_publish("", queue, b"%d" % at, properties(at))
    got = drain(cluster, queue, others[0])
    assert sorted(map(int, got)) == list(range(200))
