"""RabbitMQ's guide to mirrored queues, walked section by section on real clusters.

Each test quotes the first words of the sentences that it checks. Where Warren does something else,
the test says what, and docs/explanation/membership.md says why that is safer.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from live.conftest import eventually
from live.load import connect, drain
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import Unavailable
from warren.local import LocalCluster
from warren_wire.admin.members import QueueMembers

pytestmark = [pytest.mark.live, pytest.mark.slow]
WAIT_S = PATIENCE_S
NODES = ["node-0", "node-1", "node-2"]
CLASSIC = {"x-queue-type": "classic"}
QUORUM = {"x-queue-type": "quorum"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes for the whole document; a test that stops one starts it again."""
    with LocalCluster(nodes=3, directory=tmp_path_factory.mktemp("document")) as made:
        yield made


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    """Asks whichever node answers; the policies and queues of a test end with it."""
    with Connection(cluster.address) as connection:
        made = Admin(connection)
        yield made
    for node in NODES:
        if not cluster.is_running(node):
            cluster.start(node)
    with Connection(cluster.address) as connection:
        made = Admin(connection)
        for policy in made.policies.list("/"):
            made.policies.delete("/", policy.name)
        for queue in made.queues.list():
            made.queues.delete(queue.name)


def declare(cluster: LocalCluster, name: str, node: int = 0, **arguments: Any) -> list[bytes]:
    """A durable queue with ten confirmed messages."""
    bodies = [b"%d" % number for number in range(10)]
    with connect(cluster, node) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments=arguments or CLASSIC)
        for body in bodies:
            channel.basic_publish("", name, body)
    return bodies


def on(admin: Admin, queue: str, nodes: list[str]) -> QueueMembers:
    """Wait until the queue is synchronised on these nodes."""

    def arrived() -> QueueMembers | None:
        try:
            seen = admin.members.get(queue)
        except Unavailable:
            return None
        return seen if seen.settled and list(seen.synchronised) == nodes else None

    found = eventually(arrived, f"{queue} is on {nodes}", WAIT_S)
    assert isinstance(found, QueueMembers)
    return found


def warren(cluster: LocalCluster, *arguments: str) -> str:
    """Run the command line."""
    uri = f"amqp://guest:guest@{cluster.hosts}/"
    return subprocess.run(
        [sys.executable, "-m", "warren.cli", *arguments, "--uri", uri],
        capture_output=True,
        text=True,
        check=True,
    ).stdout


# ------------------------------------------------------------------ how mirroring is configured


@pytest.mark.specification(
    "mirrored-queues: Policies can change at any time",
    "mirrored-queues: exactly count Number of queue replicas",
    "mirrored-queues: If there are fewer than count nodes",
    "mirrored-queues: all (none) Queue is mirrored across all nodes",
    "mirrored-queues: nodes node names Queue is mirrored",
    "mirrored-queues: If any of those node names are not a part",
    "mirrored-queues: Whenever the HA policy for a queue changes",
)
def test_queue_arguments_that_control_mirroring(cluster: LocalCluster, admin: Admin) -> None:
    """ "Policies can change at any time; it is valid to create a non-mirrored queue, and then"
    "exactly count Number of queue replicas (master plus mirrors) in the cluster."
    "A count value of 1 means a single replica: just the queue master."
    "If there are fewer than count nodes in the cluster, the queue is mirrored to all nodes."
    "all (none) Queue is mirrored across all nodes in the cluster."
    "nodes node names Queue is mirrored to the nodes listed in node names."
    "If any of those node names are not a part of the cluster, this does not constitute an error."
    "Whenever the HA policy for a queue changes it will endeavour to keep its existing mirrors" """
    bodies = declare(cluster, "q")
    assert on(admin, "q", ["node-0"]).following == ""
    for definition, nodes in (
        ({"ha-mode": "all"}, NODES),
        ({"ha-mode": "nodes", "ha-params": ["node-1", "node-2", "node-9"]}, NODES[1:]),
        ({"ha-mode": "exactly", "ha-params": 2}, NODES[1:]),
        ({"ha-mode": "exactly", "ha-params": 7}, NODES),
        ({"ha-mode": "nodes", "ha-params": ["node-2"]}, NODES[2:]),
        ({"ha-mode": "exactly", "ha-params": 1}, NODES[2:]),
    ):
        admin.policies.put("/", "p", "^q$", definition)
        assert "policy 'p' (ha-mode" in on(admin, "q", nodes).following
    admin.policies.delete("/", "p")
    eventually(lambda: not admin.members.get("q").following, "it is an ordinary queue again")
    assert drain(cluster, "q", 0, 10) == bodies


@pytest.mark.specification("mirrored-queues: It is possible to list queue master and mirrors")
def test_how_to_check_if_a_queue_is_mirrored(cluster: LocalCluster, admin: Admin) -> None:
    """ "Mirrored queues will have a policy name and the number of additional replicas (mirrors)"
    "When a new queue mirror is added, the event is logged"
    "It is possible to list queue master and mirrors using rabbitmqctl list_queues."
    "If a queue that's expected to be mirroring is not, this usually means that its name" """
    declare(cluster, "two.replicas", **CLASSIC)
    declare(cluster, "other", **CLASSIC)
    admin.policies.put("/", "ha-two", "^two\\.", {"ha-mode": "exactly", "ha-params": 2})
    eventually(lambda: len(admin.members.get("two.replicas").synchronised) == 2, "two", WAIT_S)
    shown = warren(cluster, "queues", "members", "two.replicas")
    assert "members follow policy 'ha-two' (ha-mode exactly 2)" in shown
    assert "2 of 2 online, 2 synchronised" in shown and "node-0 leads" in shown
    assert "follow" not in warren(cluster, "queues", "members", "other")
    logged = "queue 'two.replicas' in vhost '/': members follow policy 'ha-two' (ha-mode exactly 2)"
    eventually(lambda: any(logged in cluster.log(node) for node in range(3)), "it is logged")
    assert admin.queues.get("two.replicas").policy == "ha-two"


@pytest.mark.specification(
    "mirrored-queues: Pick the node hosting the minimum number of bound masters",
    "mirrored-queues: if a queue is on [A B]",
)
def test_queue_masters_master_migration_data_locality(cluster: LocalCluster, admin: Admin) -> None:
    """ "Pick the node hosting the minimum number of bound masters: min-masters"
    "Pick the node the client that declares the queue is connected to: client-local"
    "Note that setting or modifying a "nodes" policy can cause the existing master to go away"
    "For example, if a queue is on [A B] (with A the master), and you give it a nodes policy" """
    everywhere = {"ha-mode": "all"}
    admin.policies.put("/", "p", ".", {**everywhere, "queue-master-locator": "min-masters"})
    for number in range(6):
        declare(cluster, f"spread{number}", **CLASSIC)
    leaders = [on(admin, f"spread{number}", NODES).leader for number in range(6)]
    assert sorted(str(leader) for leader in leaders) == sorted([*NODES, *NODES])
    admin.policies.put("/", "p", ".", {**everywhere, "queue-master-locator": "client-local"})
    for number, node in enumerate(NODES):
        declare(cluster, f"local{number}", number, **CLASSIC)
        assert on(admin, f"local{number}", NODES).leader == node
    admin.policies.put("/", "p", ".", {"ha-mode": "nodes", "ha-params": ["node-0"]})
    assert on(admin, "local1", ["node-0"]).leader == "node-0"
    admin.policies.put("/", "p", ".", {"ha-mode": "nodes", "ha-params": ["node-1", "node-2"]})
    assert on(admin, "local1", NODES[1:]).leader in NODES[1:]


@pytest.mark.specification(
    "mirrored-queues: exclusive queues are never mirrored",
    "mirrored-queues: They are also never durable",
)
def test_mirroring_of_exclusive_queues(cluster: LocalCluster, admin: Admin) -> None:
    """ "For this reason, exclusive queues are never mirrored (even if they match a policy"
    "They are also never durable (even if declared as such)." """
    admin.policies.put("/", "p", ".", {"ha-mode": "all"})
    with connect(cluster, 1) as connection:
        connection.channel().queue_declare("own", exclusive=True, durable=True)
        declare(cluster, "q", **CLASSIC)
        on(admin, "q", NODES)  # by then the other one would be everywhere, too
        (own,) = [queue for queue in admin.queues.list() if queue.name == "own"]
        assert list(own.replicas) == ["node-1"] and not own.durable


@pytest.mark.parametrize(
    ("name", "pattern", "definition", "nodes"),
    [
        ("ha-two", "^two\\.", '{"ha-mode":"exactly","ha-params":2,"ha-sync-mode":"automatic"}', 2),
        ("ha-all", "^ha\\.", '{"ha-mode":"all"}', 3),
        ("ha-nodes", "^nodes\\.", '{"ha-mode":"nodes","ha-params":["node-1", "node-2"]}', 2),
    ],
)
def test_the_examples(
    cluster: LocalCluster, admin: Admin, name: str, pattern: str, definition: str, nodes: int
) -> None:
    """ "Below is a policy where queues whose names begin with "two." are mirrored to any two nodes"
    "The following example declares a policy named ha-all which matches the queues whose names"
    "A policy where queues whose names begin with "nodes." are mirrored to specific nodes" """
    warren(cluster, "policies", "set", name, pattern, definition)
    queue = pattern.strip("^").replace("\\", "") + "q"
    declare(cluster, queue, **CLASSIC)
    eventually(lambda: len(admin.members.get(queue).synchronised) == nodes, "as it says", WAIT_S)
    assert "synchronised on" in warren(cluster, "queues", "sync", queue)


# ------------------------------------------------------------------ implementation and semantics


@pytest.mark.parametrize("arguments", [CLASSIC, QUORUM], ids=["classic", "quorum"])
@pytest.mark.specification(
    "mirrored-queues: Should a mirror fail, there is little to be done",
    "mirrored-queues: Consumers that have requested to be notified",
    "mirrored-queues: Their consuming will then be cancelled on failover",
    "mirrored-queues: As the chosen mirror becomes the master, no messages",
)
def test_master_failures_and_consumer_cancellation(
    cluster: LocalCluster, admin: Admin, arguments: dict[str, Any]
) -> None:
    """ "Should a mirror fail, there is little to be done other than some bookkeeping: the master"
    "If the master fails, then one of the mirrors will be promoted to master as follows:"
    "Consumers that have requested to be notified when a queue fails over will be notified"
    "As the chosen mirror becomes the master, no messages that are published to the mirrored queue"
    "If so, they can consume with the argument x-cancel-on-ha-failover set to true."

    Different: the mirror "requeues all messages that have been delivered to clients but are pending
    acknowledgement". Here they stay with their consumers, which can acknowledge them.
    """
    admin.policies.put("/", "p", ".", {"ha-mode": "all"})
    bodies = declare(cluster, "q", **arguments)
    assert on(admin, "q", NODES).leader == "node-0"
    with connect(cluster, 1) as connection:
        notified, quiet = connection.channel(), connection.channel()
        gone: list[Any] = []
        got: dict[str, list[tuple[int, bytes, bool]]] = {"told": [], "quiet": []}
        notified.add_on_cancel_callback(gone.append)
        for channel, name, given in (
            (notified, "told", {"x-cancel-on-ha-failover": True}),
            (quiet, "quiet", {"x-cancel-on-ha-failover": False}),
        ):
            channel.basic_qos(prefetch_count=3)

            def deliver(_: Any, method: Any, __: Any, body: bytes, to: str = name) -> None:
                got[to].append((method.delivery_tag, body, method.redelivered))

            channel.basic_consume("q", deliver, consumer_tag=name, arguments=given)

        def turn(holds: Any, what: str) -> None:
            eventually(lambda: connection.process_data_events(0.05) or holds(), what, WAIT_S)

        turn(lambda: all(len(each) == 3 for each in got.values()), "both hold three")
        cluster.kill(2)
        eventually(lambda: "node-2" not in admin.members.get("q").online, "a mirror fails")
        connection.process_data_events(0.5)
        assert not gone and admin.members.get("q").leader == "node-0"
        cluster.start(2)
        on(admin, "q", NODES)
        cluster.kill(0)
        turn(lambda: gone, "the consumer that asked for it is cancelled")
        assert gone[0].method.consumer_tag == "told"
        for tag, _, _ in got["told"]:
            notified.basic_ack(tag)
        turn(lambda: cluster.is_running(0) or cluster.start(0), "node 0 runs again")
        acknowledged: list[int] = []

        def acknowledge() -> bool:
            for tag, _, _ in got["quiet"][len(acknowledged) :]:
                quiet.basic_ack(tag)
                acknowledged.append(tag)
            return len(acknowledged) == 7

        turn(acknowledge, "the other consumer gets the rest")
        assert not any(redelivered for _, _, redelivered in [*got["told"], *got["quiet"]])
        assert sorted(body for each in got.values() for _, body, _ in each) == bodies
    eventually(lambda: not admin.queues.get("q").messages, "nothing comes back")


@pytest.mark.specification(
    "mirrored-queues: a tx.commit-ok will only be returned",
    "mirrored-queues: a message will only be confirmed to the publisher",
    "mirrored-queues: Messages published by clients using publisher confirms",
)
def test_publisher_confirms_and_transactions(cluster: LocalCluster, admin: Admin) -> None:
    """ "So in the case of a transaction, a tx.commit-ok will only be returned to a client when"
    "Equally, in the case of publisher confirms, a message will only be confirmed to the publisher"
    "Messages published by clients using publisher confirms will still be confirmed even if"

    Different: a majority has it, on disk, not all mirrors; one that is down stops no publisher.
    """
    admin.policies.put("/", "p", ".", {"ha-mode": "all"})
    declare(cluster, "q", **CLASSIC)
    on(admin, "q", NODES)
    cluster.kill(2)
    try:
        with connect(cluster, 1) as connection:
            channel = connection.channel()
            channel.tx_select()
            channel.basic_publish("", "q", b"tx")
            channel.tx_commit()
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"confirmed")
            cluster.kill(0)
            cluster.start(2)
            channel.basic_publish("", "q", b"after")
    finally:
        for node in (0, 2):
            if not cluster.is_running(node):
                cluster.start(node)
    on(admin, "q", NODES)
    assert drain(cluster, "q", 0, 13)[10:] == [b"tx", b"confirmed", b"after"]


# ------------------------------------------------------------------ synchronisation


@pytest.mark.specification(
    "mirrored-queues: To see mirror status (whether they are synchronised)",
    "mirrored-queues: It is possible to manually synchronise a queue",
    "mirrored-queues: ha-sync-mode: manual",
    "mirrored-queues: ha-sync-mode: automatic: a queue will automatically",
)
def test_unsynchronised_mirrors(cluster: LocalCluster, admin: Admin) -> None:
    """ "A newly added mirror provides no additional form of redundancy or availability of the"
    "To see mirror status (whether they are synchronised), use:"
    "It is possible to manually synchronise a queue:"
    "ha-sync-mode: manual: this is the default mode."
    "ha-sync-mode: automatic: a queue will automatically synchronise when a new mirror joins."
    "Classic queue masters perform synchronisation in batches."

    Different: every new member gets everything before it counts, whatever the mode, and "while a
    queue is being synchronised, all other queue operations will be blocked" does not hold.
    """
    bodies = declare(cluster, "q", **CLASSIC)
    cluster.kill(2)
    try:
        mode = {"ha-mode": "all", "ha-sync-mode": "manual", "ha-sync-batch-size": 5}
        admin.policies.put("/", "p", ".", mode)
        eventually(
            lambda: admin.members.get("q").synchronised == ("node-0", "node-1"), "two", WAIT_S
        )
        seen = admin.members.get("q")
        assert not seen.settled and seen.wanted == tuple(NODES)
        with connect(cluster, 1) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.basic_publish("", "q", b"meanwhile")
    finally:
        cluster.start(2)
    assert admin.waiting(WAIT_S).members.await_synchronised("q").synchronised == tuple(NODES)
    assert all(member.lag == 0 for member in admin.members.get("q").members)
    assert drain(cluster, "q", 2, 11) == [*bodies, b"meanwhile"]


@pytest.mark.parametrize("when", ["always", "when-synced"])
@pytest.mark.specification(
    "mirrored-queues: When set to when-synced, it will make sure",
    "mirrored-queues: Default value is always",
)
def test_promotion_of_unsynchronised_mirrors_on_failure(
    cluster: LocalCluster, admin: Admin, when: str
) -> None:
    """ "By default if a queue's master node fails, loses connection to its peers or is removed"
    "Starting with RabbitMQ 3.7.5, the ha-promote-on-failure policy key controls whether"
    "If you would prefer to have queue master move to an unsynchronised mirror in all circumstances"

    Different: neither key lets a member lead that lacks a confirmed message. Of two members both
    confirm; if one is down the queue waits for it.
    """
    keys = {"ha-promote-on-failure": when, "ha-promote-on-shutdown": when}
    admin.policies.put(
        "/", "p", ".", {"ha-mode": "nodes", "ha-params": ["node-0", "node-1"], **keys}
    )
    bodies = declare(cluster, "q", **CLASSIC)
    leader = on(admin, "q", NODES[:2]).leader
    other = "node-1" if leader == "node-0" else "node-0"
    cluster.kill(other)
    cluster.kill(str(leader))
    cluster.start(other)
    cluster.start(str(leader))
    on(admin, "q", NODES[:2])
    assert drain(cluster, "q", 2, 10) == bodies


@pytest.mark.specification("mirrored-queues: In general, as you restart other nodes")
def test_stopping_nodes_and_synchronisation(cluster: LocalCluster, admin: Admin) -> None:
    """ "If you stop a RabbitMQ node which contains the master of a mirrored queue, some mirror on"
    "If the mirrored queue was declared durable then, if its last remaining node is shutdown,"
    "In general, as you restart other nodes, if they were previously part of a mirrored queue then"

    Different: "when a mirror rejoins a mirrored queue, it throws away any durable local contents";
    here it keeps its log, and gets what it missed. The order of the restarts does not matter.
    """
    admin.policies.put("/", "p", ".", {"ha-mode": "all"})
    bodies = declare(cluster, "q", **CLASSIC)
    leader = on(admin, "q", NODES).leader
    cluster.stop_node(str(leader))
    eventually(lambda: admin.members.get("q").leader not in (None, leader), "another leads")
    for node in NODES:
        if node != leader:
            cluster.stop_node(node)
    cluster.start()
    with Connection(cluster.address) as connection:
        on(Admin(connection), "q", NODES)
    assert drain(cluster, "q", 1, 10) == bodies


@pytest.mark.specification(
    "mirrored-queues: If master node of a queue (the node running queue master) is available",
    "mirrored-queues: A durable queue will become unavailable until",
    "mirrored-queues: A non-durable one will be deleted",
)
def test_non_mirrored_queue_behavior_in_a_cluster(cluster: LocalCluster, admin: Admin) -> None:
    """ "If master node of a queue (the node running queue master) is available, all queue
    operations" "A durable queue will become unavailable until the node comes back."
    "A non-durable one will be deleted." """
    bodies = declare(cluster, "kept", 2, **CLASSIC)
    with connect(cluster, 2) as connection:
        connection.channel().queue_declare("passing", arguments=CLASSIC)
    with connect(cluster, 0) as connection:
        connection.channel().basic_publish("", "kept", b"from another node")
    cluster.kill(2)
    try:
        with connect(cluster, 0) as connection:
            channel = connection.channel()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="is down or inaccess"):
                eventually(
                    lambda: channel.queue_declare("kept", durable=True, arguments=CLASSIC) and None,
                    "its node is missed",
                )
        eventually(lambda: "passing" not in [q.name for q in admin.queues.list()], "it is deleted")
    finally:
        cluster.start(2)
    eventually(lambda: admin.members.get("kept").leader, "its node is back")
    # Each node decides by its own suspicions whether the other one is there.
    assert drain(cluster, "kept", 2, 11) == [*bodies, b"from another node"]
