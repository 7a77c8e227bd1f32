"""Leaders die under load: confirmed messages are kept, and clients continue."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import contextmanager

import pytest

from live.conftest import eventually
from live.load import Publisher, connect, drain
from tests.patience import PATIENCE_S, TooSlow, with_time_enough
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import Unavailable
from warren.local import LocalCluster
from warren.uri import Address

pytestmark = [pytest.mark.live, pytest.mark.slow]
PUBLISHERS = 3


@pytest.fixture
def cluster(tmp_path):
    """A cluster of the test's own: nodes die here."""
    with LocalCluster(nodes=3, directory=tmp_path) as made:
        yield made


@pytest.fixture
def patient(tmp_path):
    """A cluster of which each node waits for the others for longer than a client waits for it."""
    settings = {"limits": {"operation_timeout_ms": 600_000}}
    with LocalCluster(nodes=3, directory=tmp_path, settings=settings) as made:
        yield made


@pytest.fixture
def queue(request):
    """A queue's name: the test's."""
    return request.node.name


def longest_gap(publishers, began, ended):
    moments = sorted(moment for publisher in publishers for moment in publisher.moments)
    edges = [began, *moments, ended]
    return max(after - before for before, after in itertools.pairwise(edges))


@contextmanager
def confirming(cluster, queue):
    """Yield a channel with confirms, on which that quorum queue was declared."""
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
        channel.confirm_delivery()
        yield channel


@pytest.mark.specification(
    "quorum-queues: Message replication",
    "quorum-queues: When a RabbitMQ node hosting a quorum queue's leader fails",
    "mirrored-queues: As the chosen mirror becomes the master, no messages",
)
def test_nothing_confirmed_is_lost_when_the_leader_dies(cluster, queue, record_property):
    with connect(cluster, 0) as connection:
        connection.channel().queue_declare(
            queue, durable=True, arguments={"x-queue-type": "quorum"}
        )
    leader = cluster.leader_of(queue)
    stop = threading.Event()
    publishers = [Publisher(cluster, queue, number, stop) for number in range(PUBLISHERS)]
    began = time.monotonic()
    for publisher in publishers:
        publisher.start()
    eventually(lambda: all(len(p.confirmed) > 50 for p in publishers), "publishing is under way")
    cluster.kill(leader)
    killed = time.monotonic()
    new = eventually(
        lambda: (found := cluster.leader_of(queue)) is not None and found != leader and [found],
        "another node leads",
    )[0]
    eventually(
        lambda: all(p.moments and p.moments[-1] > killed + 1 for p in publishers), "all go on"
    )
    cluster.start(leader)
    before = [len(each.confirmed) for each in publishers]
    eventually(
        lambda: all(len(p.confirmed) > n + 50 for p, n in zip(publishers, before, strict=True)),
        "all continue beside the node that is back",
    )
    stop.set()
    for publisher in publishers:
        publisher.join(PATIENCE_S)
        assert not publisher.is_alive()
    gap = longest_gap(publishers, began, time.monotonic())
    got = drain(cluster, queue, new)
    confirmed = [body for publisher in publishers for body in publisher.confirmed]
    assert not set(confirmed) - set(got), "confirmed and lost"
    doubled = len(got) - len(set(got))
    assert doubled == 0, f"{doubled} messages of distinct publishes are in the queue twice"
    for publisher in publishers:
        own = [
            int(body.split(b":")[1]) for body in got if body.startswith(b"%d:" % publisher.number)
        ]
        assert own == sorted(own), "order of a publisher"
    record_property("longest_gap_s", round(gap, 3))
    print(f"{len(confirmed)} confirmed, longest gap without a confirm {gap:.3f} s")


@pytest.mark.specification(
    "quorum-queues: A quorum queue should be able to tolerate a minority",
    "mirrored-queues: Messages published by clients using publisher confirms",
    "at-least-once-dead-lettering: The source quorum queue will still be available",
)
def test_a_client_keeps_working_when_the_leader_moves(cluster, queue):
    with connect(cluster, 0) as connection:
        connection.channel().queue_declare(
            queue, durable=True, arguments={"x-queue-type": "quorum"}
        )
    leader = cluster.leader_of(queue)
    other = (leader + 1) % 3
    with connect(cluster, other) as connection:  # a connection to a node that survives
        channel = connection.channel()
        channel.confirm_delivery()
        got = []

        def on_message(ch, method, properties, body):
            got.append(body)
            ch.basic_ack(method.delivery_tag)

        channel.basic_qos(prefetch_count=5)
        consumer = connection.channel()
        consumer.basic_qos(prefetch_count=5)
        consumer.basic_consume(queue, on_message)
        for i in range(50):
            channel.basic_publish("", queue, b"%d" % i)
            if i == 25:
                cluster.kill(leader)
        eventually(
            lambda: connection.process_data_events(0.05) or len(set(got)) == 50, "all arrive"
        )
        assert sorted(set(got), key=int) == [b"%d" % i for i in range(50)]
        eventually(
            lambda: consumer.queue_declare(queue, passive=True).method.message_count == 0, "empty"
        )


@pytest.mark.specification(
    "quorum-queues: Publisher confirms will only be issued",
    "quorum-queues: requiring more than half of members to be available",
    "mirrored-queues: a message will only be confirmed to the publisher",
)
def test_without_a_majority_nothing_is_confirmed_and_nothing_is_lost(cluster, queue):
    with confirming(cluster, queue) as channel:
        channel.basic_publish("", queue, b"before")
        cluster.kill(1)
        cluster.kill(2)
        publish = threading.Event()

        def confirmed():
            channel.basic_publish("", queue, b"during")
            publish.set()

        thread = threading.Thread(target=confirmed, daemon=True)
        thread.start()
        assert not publish.wait(3), "confirmed without a majority"
        cluster.start(1)
        assert publish.wait(PATIENCE_S), "the confirm comes with the majority"
        thread.join(PATIENCE_S)
    cluster.start(2)
    assert drain(cluster, queue, 1) == [b"before", b"during"]


@pytest.mark.specification(
    "quorum-queues: Per message persistence",
    "quorum-queues: A message that was successfully confirmed back",
    "reliability-guide: requiring that a durable object or persistent message",
    "at-least-once-dead-lettering: all messages in quorum queues are written to disk anyway",
)
def test_everything_is_there_after_all_nodes_were_killed(cluster, queue):
    with confirming(cluster, queue) as channel:
        for i in range(100):
            channel.basic_publish("", queue, b"%d" % i)
    for node in range(3):
        cluster.kill(node)
    for node in range(3):
        cluster.start(node)
    assert drain(cluster, queue, 2) == [b"%d" % i for i in range(100)]


def test_the_list_of_queues_does_not_wait_for_a_node_that_hangs(patient):
    """Its transient queues have no other member; a client that asks is answered nevertheless."""
    with connect(patient, 0) as connection:
        connection.channel().queue_declare("kept", durable=True)
    on_it = connect(patient, 1)
    on_it.channel().queue_declare("gone.with.it", exclusive=True)
    patient.pause(1)
    address = Address(hosts=patient.node_address(2).hosts, request_timeout_s=PATIENCE_S)
    with Connection(address) as connection:
        names = [queue.name for queue in Admin(connection).queues.list()]
    assert names == ["gone.with.it", "kept"]
    patient.resume(1)


def test_a_request_that_takes_longer_than_the_clients_idle_timeout_is_answered(cluster):
    """On a connection that has just been made, the first heartbeat must come in time, too."""
    with connect(cluster, 0) as connection:
        connection.channel().queue_declare(
            "minority", durable=True, arguments={"x-queue-type": "quorum"}
        )
    cluster.kill(1)
    cluster.kill(2)

    def refused(idle_s):
        """Why a request of four idle timeouts is not answered."""
        address = Address(
            hosts=cluster.node_address(0).hosts, request_timeout_s=4 * idle_s, heartbeat_s=idle_s
        )
        with Connection(address) as connection, pytest.raises(Unavailable) as raised:
            Admin(connection).queues.purge("minority")
        if "idle" in str(raised.value):  # by the node's fault, or as this machine stood so long
            raise TooSlow(raised.value)
        return str(raised.value)

    assert "gave up after" in with_time_enough(refused, 2)
