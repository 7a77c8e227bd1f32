"""Dead lettering at least once on a real cluster: RabbitMQ's walk, failover, full targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest

from live.conftest import eventually
from warren.admin import Admin, Queue
from warren.connection import Connection
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]
RETRY_MS = 1_500
LETTERS = {
    "x-queue-type": "quorum",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
    "x-dead-letter-exchange": "",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One of this module's own: its nodes are stopped and killed."""
    settings = {"queues": {"dead_letter_worker_publisher_confirm_timeout_ms": RETRY_MS}}
    directory = tmp_path_factory.mktemp("letters")
    with LocalCluster(nodes=3, directory=directory, settings=settings) as made:
        yield made


def connect(cluster: LocalCluster, node: int) -> pika.BlockingConnection:
    """A connection to that node."""
    uri = f"amqp://guest:guest@{cluster.addresses[node]}/%2F"
    return pika.BlockingConnection(pika.URLParameters(uri))


def counts(admin: Admin, queue: str) -> tuple[int, int, int, int]:
    """(messages, ready, unacknowledged, dead-lettering) of a queue."""
    found: Queue = admin.queues.get(queue)
    held = found.messages_unacknowledged
    return found.messages, found.messages_ready, held, found.messages_dlx


def become(admin: Admin, queue: str, expected: tuple[int, int, int, int]) -> None:
    """Wait for these counts."""
    seen: list[Any] = []

    def holds() -> bool:
        seen[:] = [counts(admin, queue)]
        return seen == [expected]

    try:
        eventually(holds, f"{queue} has {expected}", 20)
    except AssertionError as late:
        raise AssertionError(f"{queue} has {seen}, not {expected}") from late


def publish(channel: Any, queue: str, body: bytes, **more: Any) -> None:
    """Publish a persistent message."""
    properties = pika.BasicProperties(delivery_mode=2, **more)
    channel.basic_publish("", queue, body, properties)


def reject(channel: Any, queue: str, count: int) -> None:
    """Take so many messages and reject them."""
    for _ in range(count):
        got = eventually(lambda: (one := channel.basic_get(queue))[0] and one, "a message")
        channel.basic_reject(got[0].delivery_tag, requeue=False)


def bodies(channel: Any, queue: str) -> list[bytes]:
    """Everything in a queue."""
    found = []
    while (got := channel.basic_get(queue, True))[0]:
        found.append(got[2])
    return found


def warnings(cluster: LocalCluster, *words: str) -> int:
    """Lines of all nodes' logs with these words."""
    lines = [line for node in range(3) for line in cluster.log(node).splitlines()]
    return sum(all(word in line for word in words) for line in lines)


@pytest.mark.specification(
    "quorum-queues: The internal consumer will consume dead-lettered",
    "quorum-queues: Set dead-letter-strategy to at-least-once",
    "quorum-queues: One (of possibly many) routed target queues",
    "at-least-once-dead-lettering: we need to apply the following policies",
    "at-least-once-dead-lettering: With the new at-least-once strategy when the 3rd message",
    "at-least-once-dead-lettering: The log displays a descriptive warning",
    "at-least-once-dead-lettering: Even though the target queue was unavailable",
)
def test_the_walk_of_rabbitmqs_announcement(cluster: LocalCluster) -> None:
    """Target down, target back: the counts at every step."""
    source, target = "my-source-queue", "my-target-queue"
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        begun = {key: value for key, value in LETTERS.items() if "strategy" not in key}
        begun["x-dead-letter-routing-key"] = target
        channel.queue_declare(source, durable=True, arguments=begun)
        channel.queue_declare(target, durable=True, arguments={"x-queue-type": "classic"})
        publish(channel, source, b"msg1", expiration="1000")
    with Connection(cluster.node_address(1)) as operator, connect(cluster, 1) as connection:
        admin, channel = Admin(operator), connection.channel()
        become(admin, target, (1, 1, 0, 0))
        become(admin, source, (0, 0, 0, 0))
        cluster.stop_node(0)
        # The second message gets lost: the strategy is at-most-once, the target is down.
        channel.confirm_delivery()
        publish(channel, source, b"msg2", expiration="1000")
        become(admin, source, (0, 0, 0, 0))
        strategy = {"dead-letter-strategy": "at-least-once"}
        admin.policies.put("/", "my-policy", "^my-source-queue$", strategy, apply_to="queues")
        publish(channel, source, b"msg3", expiration="1000")
        become(admin, source, (1, 0, 0, 1))
        words = ("dead letters of queue 'my-source-queue'", "''", target)
        eventually(lambda: warnings(cluster, *words), "a warning")
        cluster.start(0)
        become(admin, source, (0, 0, 0, 0))
        become(admin, target, (2, 2, 0, 0))
        assert channel.basic_get(target, True)[2] == b"msg1"
        _, properties, body = channel.basic_get(target, True)
        assert body == b"msg3"
        (death,) = properties.headers["x-death"]
        assert (death["count"], death["reason"], death["queue"]) == (1, "expired", source)
        assert death["original-expiration"] == "1000" and properties.expiration is None
        assert warnings(cluster, *words) == 1, "this message is not logged again"


@pytest.mark.specification(
    "quorum-queues: The messages cannot be routed to any queue",
    "quorum-queues: The dead-letter consumer process will retry periodically",
    "at-least-once-dead-lettering: This new feature ensures that all messages dead lettered",
    "at-least-once-dead-lettering: If a route does not exist, the dead letter consumer",
)
def test_letters_outlive_their_leader_and_the_lack_of_a_target(cluster: LocalCluster) -> None:
    source, target = "letters.source", "letters.missing"
    count = 50
    expected = sorted(b"%d" % i for i in range(count))
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        arguments = {**LETTERS, "x-dead-letter-routing-key": target}
        channel.queue_declare(source, durable=True, arguments=arguments)
        channel.confirm_delivery()
        for body in expected:
            publish(channel, source, body)
        reject(channel, source, count)
    leader = cluster.leader_of(source)
    other = (leader + 1) % 3
    with Connection(cluster.node_address(other)) as operator, connect(cluster, other) as connection:
        admin, channel = Admin(operator), connection.channel()
        become(admin, source, (count, 0, 0, count))
        cluster.kill(leader)
        eventually(lambda: cluster.leader_of(source) != leader or None, "another leader")
        become(admin, source, (count, 0, 0, count))
        channel.queue_declare(target, durable=True, arguments={"x-queue-type": "quorum"})
        become(admin, source, (0, 0, 0, 0))
        got = bodies(channel, target)
        assert sorted(set(got)) == expected and len(got) == count
        cluster.start(leader)


@pytest.mark.specification(
    "quorum-queues: It will only acknowledge once publisher confirms",
    "quorum-queues: One (of possibly many) routed target queues",
    "at-least-once-dead-lettering: forward them to all target queues",
)
def test_a_full_target_gets_the_rest_when_it_has_room(cluster: LocalCluster) -> None:
    source, target = "full.source", "full.target"
    with Connection(cluster.address) as operator, connect(cluster, 0) as connection:
        admin, channel = Admin(operator), connection.channel()
        full = {"x-queue-type": "quorum", "x-max-length": 2, "x-overflow": "reject-publish"}
        channel.queue_declare(target, durable=True, arguments=full)
        arguments = {**LETTERS, "x-dead-letter-routing-key": target, "x-max-length": 5}
        channel.queue_declare(source, durable=True, arguments=arguments)
        channel.confirm_delivery()
        for i in range(5):
            publish(channel, source, b"%d" % i)
        reject(channel, source, 5)
        become(admin, source, (3, 0, 0, 3))
        publish(channel, source, b"5")
        publish(channel, source, b"6")
        with pytest.raises(pika.exceptions.NackError):
            publish(channel, source, b"7")  # letters count towards the limit
        first = bodies(channel, target)
        become(admin, source, (3, 2, 0, 1))
        assert first + bodies(channel, target) == [b"0", b"1", b"2", b"3"]
        become(admin, source, (2, 2, 0, 0))
        assert bodies(channel, target) == [b"4"]
        assert warnings(cluster, "dead letters of queue 'full.source'", "'full.target'") == 1


@pytest.mark.specification("quorum-queues: If the dead-letter strategy is changed")
def test_switching_the_strategy_off_drops_what_waits(cluster: LocalCluster) -> None:
    source, target = "switched.source", "switched.target"
    with Connection(cluster.address) as operator, connect(cluster, 0) as connection:
        admin, channel = Admin(operator), connection.channel()
        arguments = {"x-queue-type": "quorum", "x-dead-letter-exchange": "nowhere"}
        arguments["x-dead-letter-routing-key"] = target
        channel.queue_declare(source, durable=True, arguments=arguments)
        policy = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
        channel.confirm_delivery()

        def kept() -> bool:
            publish(channel, source, b"x")
            reject(channel, source, 1)
            return counts(admin, source)[3] > 0

        assert not kept(), "drop-head: at most once"
        admin.policies.put("/", "switch", f"^{source}$", policy, apply_to="quorum_queues")
        eventually(kept, "a letter is kept")
        eventually(
            lambda: warnings(cluster, f"'{source}'", "'nowhere' does not exist"), "a warning"
        )
        changed = {**policy, "overflow": "drop-head"}
        admin.policies.put("/", "switch", f"^{source}$", changed, apply_to="quorum_queues")
        become(admin, source, (0, 0, 0, 0))
        eventually(lambda: warnings(cluster, f"'{source}'", "dead letters, ", "dropped"), "a line")
        said = ("Falling back to dead-letter-strategy at-most-once", f"'{source}'")
        assert warnings(cluster, *said) == 1
        assert not kept()
        admin.policies.delete("/", "switch")


@pytest.mark.parametrize("missing", ["queue", "room"])
def test_letters_go_on_soon_after_their_target_appears_or_has_room(missing: str) -> None:
    """They waited for the next retry, three minutes by default."""
    with LocalCluster(nodes=1) as cluster, connect(cluster, 0) as connection:  # no other retry time
        channel = connection.channel()
        channel.confirm_delivery()
        target = {"x-queue-type": "quorum", "x-max-length": 5, "x-overflow": "reject-publish"}
        if missing == "room":
            channel.queue_declare("target", durable=True, arguments=target)
            for _ in range(5):
                publish(channel, "target", b"first")
        arguments = {**LETTERS, "x-dead-letter-routing-key": "target"}
        channel.queue_declare("source", durable=True, arguments=arguments)
        for number in range(5):
            publish(channel, "source", b"%d" % number)
        reject(channel, "source", 5)
        with Connection(cluster.node_address(0)) as operator:
            admin = Admin(operator)
            become(admin, "source", (5, 0, 0, 5))
            eventually(lambda: "dead letters of queue" in cluster.log(0), "they wait")
            if missing == "room":
                channel.queue_purge("target")
            else:
                channel.queue_declare("target", durable=True, arguments=target)
            become(admin, "source", (0, 0, 0, 0))
        assert sorted(bodies(channel, "target")) == [b"%d" % number for number in range(5)]
