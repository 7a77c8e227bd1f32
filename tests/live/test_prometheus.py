"""The endpoint for Prometheus of a running cluster, against what happened there."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families
from proton import Delivery, Message
from proton.reactor import AtMostOnce
from proton.utils import BlockingConnection, SendException

from live.conftest import eventually
from tests.patience import PATIENCE_S
from warren import Admin, ClaimReader, Producer
from warren.local import LocalCluster
from warren.stages import SinkDriver, StageWriter, draw_epoch
from warren_broker.http.bounded_connection import HEADERS_S
from warren_broker.metrics.endpoint import SCRAPERS_PER_ADDRESS_MAX
from warren_wire.block.block import encode

pytestmark = pytest.mark.live

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
DEAD = "rabbitmq_global_messages_dead_lettered_"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    settings = {"prometheus": {"enabled": True, "tcp": {"port": 0}}}
    with LocalCluster(nodes=3, settings=settings) as made:
        yield made


def address(cluster: LocalCluster, node: int) -> tuple[str, int]:
    said = json.loads((cluster.nodes[node].data_dir / "listening.json").read_text())
    host, _, port = said["prometheus"].rpartition(":")
    return host, int(port)


def get(cluster: LocalCluster, node: int, path: str = "/metrics") -> str:
    host, port = address(cluster, node)
    with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=PATIENCE_S) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(answer.read().decode())


def scraped(cluster: LocalCluster, node: int, path: str = "/metrics") -> Samples:
    """Parse by the library's own parser; every sample once."""
    found: Samples = {}
    for family in text_string_to_metric_families(get(cluster, node, path)):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def summed(cluster: LocalCluster, name: str, **labels: str) -> float:
    """The sum over the nodes, as `sum(name)` in Prometheus."""
    key = name, frozenset(labels.items())
    return sum(scraped(cluster, node)[key] for node in range(3))


def died(cluster: LocalCluster, reason: str, strategy: str, kind: str = "quorum") -> float:
    labels = {"queue_type": f"rabbit_{kind}_queue", "dead_letter_strategy": strategy}
    return summed(cluster, f"{DEAD}{reason}_total", **labels)


def connect(cluster: LocalCluster, node: int = 0) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", cluster.nodes[node].amqp_port)
    )


def declare(channel: Any, name: str, **arguments: Any) -> None:
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **named})


def count(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


@pytest.mark.specification(
    "at-least-once-dead-lettering: Node-global counters will return",
)
def test_dead_letters_are_counted_by_reason_type_and_strategy(cluster: LocalCluster) -> None:
    with connect(cluster) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel, "target")
        to_target = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "target"}
        kept = {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"}
        declare(channel, "short", x_max_length=2, **to_target)
        declare(channel, "brief", x_message_ttl=1, **to_target)
        declare(channel, "tried", x_delivery_limit=1, **to_target)
        declare(channel, "kept", **to_target, **kept)
        declare(channel, "no-exchange")
        declare(channel, "no-such-exchange", x_dead_letter_exchange="nowhere")
        channel.queue_declare("old", arguments={"x-queue-type": "classic", "x-max-length": 1})
        for _ in range(7):
            channel.basic_publish("", "short", b"5 of 7 die")
        for queue, number in (("brief", 3), ("kept", 4), ("no-exchange", 2)):
            for _ in range(number):
                channel.basic_publish("", queue, b"all die")
        channel.basic_publish("", "tried", b"dies at its second failure")
        channel.basic_publish("", "no-such-exchange", b"dies")
        for _ in range(3):
            channel.basic_publish("", "old", b"2 of 3 die")
        for queue, number in (("kept", 4), ("no-exchange", 2), ("no-such-exchange", 1)):
            for _ in range(number):
                got = channel.basic_get(queue)
                channel.basic_reject(got[0].delivery_tag, requeue=False)
        for _ in range(2):
            got = eventually(lambda: (one := channel.basic_get("tried"))[0] and one, "a message")
            channel.basic_reject(got[0].delivery_tag, requeue=True)
        eventually(lambda: count(channel, "target") == 5 + 3 + 4 + 1, "all are in the target")
    eventually(
        lambda: (
            summed(
                cluster,
                f"{DEAD}confirmed_total",
                queue_type="rabbit_quorum_queue",
                dead_letter_strategy="at_least_once",
            )
            == 4
        ),
        "the letters that were kept are confirmed",
    )
    assert died(cluster, "maxlen", "at_most_once") == 5
    assert died(cluster, "expired", "at_most_once") == 3
    assert died(cluster, "delivery_limit", "at_most_once") == 1
    assert died(cluster, "rejected", "at_least_once") == 4
    assert died(cluster, "rejected", "disabled") == 2 + 1
    assert died(cluster, "maxlen", "disabled", "classic") == 2
    for reason, strategy in (("expired", "disabled"), ("rejected", "at_most_once")):
        assert died(cluster, reason, strategy) == 0
        assert died(cluster, reason, strategy, "classic") == 0


def test_messages_and_objects_are_counted(cluster: LocalCluster) -> None:
    eventually(lambda: summed(cluster, "rabbitmq_connections") == 0, "no other client is there")
    before = [scraped(cluster, node) for node in range(3)]

    def more(name: str, **labels: str) -> float:
        key = name, frozenset(labels.items())
        return sum(scraped(cluster, node)[key] - before[node][key] for node in range(3))

    with connect(cluster, 1) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel, "counted")
        channel.queue_bind("counted", "amq.fanout")
        declare(channel, "other")
        channel.queue_bind("other", "amq.fanout")
        for _ in range(10):
            channel.basic_publish("amq.fanout", "", b"body")
        with connect(cluster, 1) as unconfirmed:
            unconfirmed.channel().basic_publish("", "counted", b"body")
        eventually(lambda: count(channel, "counted") == 11, "all are there")
        kind = {"protocol": "amqp091", "queue_type": "rabbit_quorum_queue"}
        held = [channel.basic_get("counted")[0].delivery_tag for _ in range(4)]
        channel.basic_ack(held[2], multiple=True)
        channel.basic_nack(held[3], requeue=True)
        assert channel.basic_get("counted", auto_ack=True)[0].redelivered
        consumed = []
        channel.basic_qos(prefetch_count=5)
        channel.basic_consume("other", lambda *said: consumed.append(said))
        while len(consumed) < 5:
            connection.process_data_events(0.1)
        name = "rabbitmq_global_messages_"
        received = more(f"{name}received_total", protocol="amqp091")
        assert received == 11
        assert more(f"{name}received_confirm_total", protocol="amqp091") == 10
        assert more(f"{name}confirmed_total", protocol="amqp091") == 10
        assert more(f"{name}routed_total", protocol="amqp091") == 21
        assert more(f"{name}delivered_get_manual_ack_total", **kind) == 4
        assert more(f"{name}delivered_get_auto_ack_total", **kind) == 1
        assert more(f"{name}delivered_consume_manual_ack_total", **kind) == 5
        assert more(f"{name}delivered_total", **kind) == 10
        assert more(f"{name}redelivered_total", **kind) == 1
        assert more(f"{name}acknowledged_total", **kind) == 3
        assert more("rabbitmq_consumers") == 1
        assert more("rabbitmq_connections") == 1 and more("rabbitmq_channels") == 1
        assert more("rabbitmq_connections_opened_total") == 2
        assert more("rabbitmq_connections_closed_total") == 1
        assert more("rabbitmq_queues") == 2
        assert more("rabbitmq_queue_messages_ready") == 7 + 5
        assert more("rabbitmq_queue_messages_unacked") == 5
    eventually(lambda: more("rabbitmq_connections") == 0, "its end is counted")
    assert more("rabbitmq_channels_opened_total") == more("rabbitmq_channels_closed_total") == 2


BY_PROTOCOL = "received", "received_confirm", "routed", "confirmed"
BY_QUEUE_TYPE = (
    "delivered",
    "delivered_consume_manual_ack",
    "delivered_consume_auto_ack",
    "redelivered",
    "acknowledged",
)


def counted(cluster: LocalCluster, protocol: str) -> list[float]:
    kind = {"protocol": protocol, "queue_type": "rabbit_quorum_queue"}
    prefix = "rabbitmq_global_messages_"
    return [
        *(summed(cluster, f"{prefix}{name}_total", protocol=protocol) for name in BY_PROTOCOL),
        *(summed(cluster, f"{prefix}{name}_total", **kind) for name in BY_QUEUE_TYPE),
    ]


def test_messages_over_amqp_1_0_are_counted_under_their_protocol(cluster: LocalCluster) -> None:
    with connect(cluster) as connection:
        channel = connection.channel()
        for queue in ("first", "second"):
            declare(channel, queue)
            channel.queue_bind(queue, "amq.direct", "both")
        before, old = counted(cluster, "amqp10"), counted(cluster, "amqp091")
        client = BlockingConnection(
            cluster.addresses[1], user="guest", password="guest", allowed_mechs="PLAIN", timeout=60
        )
        try:
            sender = client.create_sender("/exchanges/amq.direct/both")
            for _ in range(4):
                assert sender.send(Message(body="kept")).remote_state == Delivery.ACCEPTED
            lost = client.create_sender("/exchanges/amq.direct/nowhere")
            with pytest.raises(SendException):
                lost.send(Message(body="unroutable"))
            unconfirmed = client.create_sender("/queues/first", options=AtMostOnce())
            unconfirmed.send(Message(body="settled"))
            unconfirmed.close()  # sends it: a settled send does not wait
            eventually(lambda: count(channel, "first") == 5, "the settled one is there")
            receiver = client.create_receiver("/queues/first")
            for _ in range(3):
                receiver.receive()
                receiver.accept()
            receiver.receive()
            receiver.settle(Delivery.REJECTED)  # dead-lettered, which is no acknowledgement
            receiver.receive()
            receiver.release(delivered=False)
            receiver.close()
            eventually(lambda: count(channel, "first") == 1, "the released one is back")
            again = client.create_receiver("/queues/first")
            again.receive()
            again.accept()
            settled = client.create_receiver("/queues/second", options=AtMostOnce())
            for _ in range(4):
                settled.receive()
            settled.close()
        finally:
            client.close()
        expected = [6.0, 5, 9, 4, 10, 6, 4, 1, 4]

        def seen() -> list[float]:
            now = counted(cluster, "amqp10")
            return [more - less for more, less in zip(now, before, strict=True)]

        eventually(lambda: seen()[-1] >= expected[-1], "what was accepted has arrived")
        names = BY_PROTOCOL + BY_QUEUE_TYPE
        assert dict(zip(names, seen(), strict=True)) == dict(zip(names, expected, strict=True))
        assert counted(cluster, "amqp091") == old


def counted_by(node: dict[Any, float], labels: frozenset[Any]) -> bool:
    """Whether clients of a node have used a queue."""
    return ("rabbitmq_queue_messages_acked_total", labels) in node


def test_each_queue_and_its_log_are_shown_per_object(cluster: LocalCluster) -> None:
    name = 'odd "name" \\n {}'
    with connect(cluster) as connection:
        channel = connection.channel()
        declare(channel, name)
        channel.confirm_delivery()
        channel.basic_publish("", name, b"body")
        for _ in range(2):
            channel.basic_nack(channel.basic_get(name)[0].delivery_tag)
    labels = frozenset({"vhost": "/", "queue": name}.items())

    def seen_ready() -> list[Samples]:
        """Empty until the leader has the message that was given back last."""
        found = [scraped(cluster, node, "/metrics/per-object") for node in range(3)]
        ready = [one.get(("rabbitmq_queue_messages_ready", labels)) for one in found]
        return found if sorted(ready, key=str) == [1, None, None] else []

    seen = eventually(seen_ready, "one node leads it, and has its message")
    for counter, count in {
        "queue_messages_published": 1,
        "queue_get_ack": 2,
        "queue_messages_redelivered": 1,
        "queue_get": 0,
        "queue_messages_acked": 0,
    }.items():
        of = [one[f"rabbitmq_{counter}_total", labels] for one in seen if counted_by(one, labels)]
        assert of == [count], "the node of the client counts, whichever leads"
    memberships = sorted(
        dict(key)["membership"]
        for one in seen
        for name_of, key in one
        if name_of == "rabbitmq_queue_info" and labels <= key
    )
    assert memberships == ["follower", "follower", "leader"]
    for one in seen:
        assert one["rabbitmq_raft_term", labels] >= 1
        applied = one["rabbitmq_raft_last_applied", labels]
        assert 1 <= applied <= one["rabbitmq_raft_commit_index", labels]
    whole = scraped(cluster, 0)
    coordination = frozenset({"ra_system": "coordination"}.items())
    assert whole["rabbitmq_raft_last_applied", coordination] > 1
    assert whole["rabbitmq_disk_space_available_bytes", frozenset()] > 0
    assert whole["rabbitmq_alarms_memory_used_watermark", frozenset()] == 0
    assert not any("queue" in dict(key) for _, key in whole)


def test_detailed_metrics_are_chosen_by_family_and_vhost(cluster: LocalCluster) -> None:
    with cluster.connect() as made:
        Admin(made).vhosts.put("other")
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        Admin(made).permissions.put("other", "guest", **everything)
    with connect(cluster) as connection:
        declare(connection.channel(), "detailed")
    labels = frozenset({"vhost": "/", "queue": "detailed"}.items())
    prefix = "rabbitmq_detailed_"

    def found(query: str) -> dict[str, list[Samples]]:
        """The samples of each name, of all nodes."""
        seen: dict[str, list[Samples]] = {}
        for node in range(3):
            for (name, of), value in scraped(cluster, node, f"/metrics/detailed{query}").items():
                seen.setdefault(name, []).append({(name, of): value})
        return seen

    always = {"rabbitmq_build_info", "rabbitmq_identity_info"}
    assert set(found("")) == set(found("?family=unknown_one")) == always
    coarse = found("?family=queue_coarse_metrics&family=queue_consumer_count&vhost=/")
    names = "queue_messages_ready queue_messages_unacked queue_messages queue_consumers queue_info"
    assert set(coarse) - always == {prefix + name for name in names.split()}
    assert any(
        (prefix + "queue_messages", labels) in one for one in coarse[prefix + "queue_messages"]
    )
    assert set(found("?family=queue_coarse_metrics&vhost=other")) == always, "it has no queue"
    assert prefix + "connections_opened_total" in found("?family=connection_churn_metrics")
    assert prefix + "process_open_fds" in found("?family=node_coarse_metrics&vhost=other")
    raft = found("?family=ra_metrics")
    assert any(
        (prefix + "raft_last_applied", labels) in one for one in raft[prefix + "raft_last_applied"]
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        get(cluster, 0, f"/metrics/detailed?{'vhost=a&' * 200}")
    assert refused.value.code == 400 and b"fields" in refused.value.read()


def test_the_parts_of_the_memory_add_up_to_the_process(cluster: LocalCluster) -> None:
    whole, parts = scraped(cluster, 0), scraped(cluster, 0, "/metrics/memory-breakdown")
    used = [value for (name, _), value in parts.items() if name.startswith("rabbitmq_memory_")]
    resident = whole["rabbitmq_process_resident_memory_bytes", frozenset()]
    assert len(used) == 26 and abs(sum(used) - resident) < resident / 4, "of two moments"
    kinds = [value for (name, _), value in parts.items() if name == "warren_memory_resident_bytes"]
    assert abs(sum(kinds) - resident) < resident / 4
    assert not [name for name, _ in parts if "queue_messages" in name]


@pytest.mark.long
def test_shovels_and_federation_links_are_counted_by_their_status(cluster: LocalCluster) -> None:
    vhost, uri = "/", f"amqp://guest:guest@{cluster.addresses[0]}"
    wrong = uri.replace("guest@", "wrong@")
    with connect(cluster) as connection:
        for name in ("transfer-a", "transfer-b", "transfer-c"):
            declare(connection.channel(), name)
    with cluster.connect() as made:
        admin = Admin(made)
        for name, source in (("one", uri), ("other", wrong)):
            ends = {"src-queue": "transfer-a", "dest-uri": "amqp://", "dest-queue": "transfer-b"}
            admin.parameters.put("shovel", vhost, name, {"src-uri": source, **ends})
            value = {"uri": source, "queue": "transfer-c"}
            admin.parameters.put("federation-upstream", vhost, name, value)
        policy = {"federation-upstream-set": "all"}
        admin.policies.put(vhost, "federated", "^transfer-b$", policy, apply_to="queues")

        families = ("rabbitmq_federation_links", "rabbitmq_shovel_dynamic")

        def counted() -> list[float]:
            states = ("starting", "running", "terminated")
            return [summed(cluster, one, status=status) for one in families for status in states]

        expected = [0, 1, 1] * 2
        eventually(lambda: counted() == expected or None, "of each two one runs, one has failed")
        admin.policies.delete(vhost, "federated")
        for name in ("one", "other"):
            admin.shovels.delete(vhost, name)
        eventually(lambda: not any(counted()) or None, "they are counted no more")


def test_what_is_no_scrape_is_answered_and_harms_nothing(cluster: LocalCluster) -> None:
    for path in ("/", "/metrics/detail", "/metrics/../etc"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(cluster, 0, path)
        assert refused.value.code == 404 and b"/metrics" in refused.value.read()
    begun = time.monotonic()
    idle = [socket.create_connection(address(cluster, 0)) for _ in range(40)]
    try:
        idle[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX: ")

        def ended() -> int:
            return len(select.select(idle, [], [], 0)[0])

        eventually(lambda: ended() >= 40 - SCRAPERS_PER_ADDRESS_MAX, "threads are bounded")
        threading.Event().wait(0.2)  # for what must not end
        left = 40 - ended()
        assert left == SCRAPERS_PER_ADDRESS_MAX or time.monotonic() > begun + HEADERS_S
        with socket.socket() as other:
            other.bind(("127.0.0.2", 0))
            other.connect(address(cluster, 0))
            other.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            other.settimeout(PATIENCE_S)
            assert b"200" in other.recv(100), "another address is served meanwhile"
        with connect(cluster) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            declare(channel, "unharmed")
            channel.basic_publish("", "unharmed", b"body")
    finally:
        for one in idle:
            one.close()
    eventually(lambda: _answers(cluster), "scrapes are served again")
    with socket.create_connection(address(cluster, 0)) as garbage:
        garbage.sendall(b"\x16\x03\x01" + b"\xff" * 70_000 + b"\r\n\r\n")
        garbage.settimeout(PATIENCE_S)
        try:
            answered = garbage.recv(100)
        except ConnectionResetError:
            answered = b""
        assert b"200" not in answered
    assert get(cluster, 0)


def _answers(cluster: LocalCluster) -> bool:
    try:
        return bool(get(cluster, 0))
    except (OSError, urllib.error.URLError):
        return False


@pytest.mark.long
def test_a_thousand_queues_that_were_deleted_leave_no_sample(cluster: LocalCluster) -> None:
    def keys() -> list[set[Any]]:
        return [set(scraped(cluster, node, "/metrics/per-object")) for node in range(3)]

    before = keys()
    for batch in range(10):
        with connect(cluster, batch % 3) as connection:  # its exclusive queues end with it
            channel = connection.channel()
            for number in range(100):
                channel.queue_declare(f"brief-{batch}-{number}", exclusive=True)
            if batch == 5:
                during = scraped(cluster, batch % 3, "/metrics/per-object")
                assert sum("brief-5-" in str(labels) for _, labels in during) >= 100
    eventually(lambda: keys() == before, "nothing of the queues is shown")


def test_a_node_measures_what_its_clients_and_its_disk_do(cluster: LocalCluster) -> None:
    before = [scraped(cluster, node) for node in range(3)]

    def more(of: list[Samples], name: str, **labels: str) -> float:
        key = name, frozenset(labels.items())
        return sum(of[node][key] - before[node][key] for node in range(3))

    def total(name: str, **labels: str) -> float:
        return sum(one[name, frozenset(labels.items())] for one in now)

    with cluster.connect() as made:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        Admin(made).users.put("kept-out", password="p")
        Admin(made).permissions.put("/", "kept-out", **everything)
        Admin(made).limits.put("user", "kept-out", "max-connections", 0)
    with connect(cluster, 1) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel, "measured")
        for size in (50, 100, 300, 5_000):
            for _ in range(5):
                channel.basic_publish("", "measured", bytes(size))
        channel.basic_consume("measured", lambda *said: None)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            known = pika.PlainCredentials("kept-out", "p")
            at = "127.0.0.1", cluster.nodes[2].amqp_port, "/", known
            pika.BlockingConnection(pika.ConnectionParameters(*at))
        sizes, of = "rabbitmq_message_size_bytes", {"protocol": "amqp091"}
        now = [scraped(cluster, node) for node in range(3)]
        assert more(now, f"{sizes}_bucket", le="100.0", **of) == 10
        assert more(now, f"{sizes}_bucket", le="1000.0", **of) == 15
        assert more(now, f"{sizes}_count", **of) == 20
        assert more(now, f"{sizes}_sum", **of) == 5 * 5_450
        assert more(now, "warren_wal_sync_seconds_count") >= 40, "each on two disks at least"
        assert more(now, "warren_wal_sync_bytes_sum") >= 2 * 5 * 5_450
        assert more(now, "warren_raft_commit_seconds_count") >= 10
        assert more(now, "warren_raft_apply_seconds_count") >= 40
        assert more(now, "warren_turn_messages_sum") == 20
        assert more(now, "rabbitmq_channel_messages_published_total") == 20
        assert more(now, "rabbitmq_channel_messages_confirmed_total") == 20
        assert more(now, "rabbitmq_connection_incoming_bytes_total") > 5 * 5_450
        assert more(now, "warren_turn_blocks_sum") >= 20
        assert more(now, "warren_loop_turn_seconds_count") >= 40
        assert more(now, "rabbitmq_global_publishers", **of) == 1
        assert more(now, "rabbitmq_global_consumers", **of) == 1
        assert more(now, "warren_connections", state="open") == 1
        assert more(now, "warren_connections_refused_total", reason="user_limit") == 1
        assert more(now, "warren_raft_groups_led") == 1 and more(now, "warren_raft_groups") == 3
        assert total("warren_raft_groups_without_leader") == 0
        assert total("warren_raft_elections_won_total") >= 1
        assert total("warren_peers", state="connected") == 6
        assert total("warren_wal_bytes") > 3 * 5 * 5_450
    opened = "warren_connections", frozenset({("state", "open")})
    eventually(lambda: scraped(cluster, 1)[opened] == before[1][opened], "its end is counted")


def test_what_waits_in_a_queue_and_its_readers_are_shown(cluster: LocalCluster) -> None:
    labels = {"vhost": "/", "queue": "read"}
    with cluster.connect() as made:
        Admin(made).queues.declare("read", arguments={"x-queue-type": "quorum"})
        with Producer(made) as producer:
            for _ in range(5):
                producer.send(b"body", "read")
        reader = ClaimReader(made, "read", "driver")
        number = reader.register().settled + 1
        reader.open(number, max_messages=3, max_bytes=1 << 20)
        body, driver = [b"\x00\x00"], SinkDriver("sink", "run", draw_epoch(made))
        writer = StageWriter(made, driver, batch=0, partition=0)
        writer.write(encode([b"staged"], body, (b"", b"read"), [4]))
        writer.finish()

        def shown(name: str, **more: str) -> float:
            key = f"warren_{name}", frozenset({**labels, **more}.items())
            found = [scraped(cluster, node, "/metrics/per-object") for node in range(3)]
            values = [one[key] for one in found if key in one]
            assert len(values) <= 1, "where it is led"
            return values[0] if values else -1.0

        eventually(lambda: shown("queue_messages_staged") == 1, "the stage is there")
        assert shown("queue_stages") == 1 and shown("queue_claims") == 1
        assert shown("queue_messages_claimed") == 3
        assert shown("reader_lag_messages", reader="driver") == 5
        aged = shown("queue_oldest_message_age_seconds")
        assert 0 < aged < PATIENCE_S
        assert shown("reader_lag_seconds", reader="driver") >= aged
        silent = shown("reader_silent_seconds", reader="driver")
        eventually(lambda: shown("reader_silent_seconds", reader="driver") > silent, "it grows")
        reader.settle(number)
        eventually(lambda: shown("reader_lag_messages", reader="driver") == 2, "what is left")
        assert summed(cluster, "warren_reader_lag_messages") >= 2


def test_the_sums_are_those_of_all_queues_whatever_has_happened(cluster: LocalCluster) -> None:
    """The sums are kept from scrape to scrape; those per object are read each time."""
    gauges = "ready", "unacked", ""
    names = [f"rabbitmq_queue_messages{'_' if one else ''}{one}" for one in gauges]
    names += ["rabbitmq_queue_consumers", "warren_queue_claims", "warren_reader_lag_messages"]
    names += ["warren_queue_messages_claimed", "warren_queue_messages_delayed"]

    def agree() -> bool:
        for node in range(3):
            sums, each = scraped(cluster, node), scraped(cluster, node, "/metrics/per-object")
            for name in names:
                total = sum(value for (of, _), value in each.items() if of == name)
                if sums[name, frozenset()] != total:
                    return False
        return True

    with cluster.connect() as made, connect(cluster) as connection:
        channel, admin = connection.channel(), Admin(made)
        channel.confirm_delivery()
        eventually(agree, "at the beginning")
        for number in range(30):
            declare(channel, f"summed-{number}")
            for _ in range(number):
                channel.basic_publish("", f"summed-{number}", b"body")
        eventually(agree, "after publishing")
        channel.basic_qos(prefetch_count=3)
        for number in range(10, 20):
            channel.basic_consume(f"summed-{number}", lambda *said: None)
        connection.process_data_events(0.2)
        reader = ClaimReader(made, "summed-5", "driver")
        number = reader.register().settled + 1
        reader.open(number, max_messages=3, max_bytes=1 << 20)
        eventually(agree, "with consumers and a claim")
        for number in range(15):
            target = cluster.nodes[number % 3].name
            admin.members.transfer(f"summed-{number}", target)
        eventually(agree, "after transfers")
        cluster.restart(2, kill=True)
        eventually(agree, "after a node was killed")
        for number in range(30):
            channel.queue_delete(f"summed-{number}")
        eventually(agree, "after deletions")
