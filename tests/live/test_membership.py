"""Nodes come, go, lose their disks, are taken into maintenance: what was confirmed stays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pika import BlockingConnection
from pika.exceptions import AMQPError, ConnectionClosedByBroker

from live.conftest import eventually
from live.load import Load, connect, drain
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import Unavailable
from warren.local import LocalCluster
from warren.uri import Address

pytestmark = [pytest.mark.live, pytest.mark.slow]
QUEUE = "orders"
WAIT_S = PATIENCE_S


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes of the test's own."""
    with LocalCluster(nodes=3, directory=tmp_path) as made:
        yield made


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    """Asks whichever node answers."""
    with Connection(
        Address(hosts=cluster.address.hosts, request_timeout_s=PATIENCE_S)
    ) as connection:
        found = Admin(connection)
        found.queues.declare(QUEUE, arguments={"x-queue-type": "quorum"})
        yield found


def through(cluster: LocalCluster, *nodes: str) -> Admin:
    """Asks these nodes only."""
    hosts = tuple(("127.0.0.1", cluster.node(name).amqp_port) for name in nodes)
    return Admin(Connection(Address(hosts=hosts, request_timeout_s=PATIENCE_S)))


def publish(cluster: LocalCluster, count: int, size: int = 200, node: int = 0) -> list[bytes]:
    """Messages that are confirmed."""
    bodies = [b"%08d" % i + b"." * (size - 8) for i in range(count)]
    with connect(cluster, node) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", QUEUE, body)
    return bodies


def voters(admin: Admin) -> list[str]:
    """The voters of the queue's group."""
    return [member.node for member in admin.members.get(QUEUE).members if member.voter]


def in_step(admin: Admin) -> bool:
    """All wanted members are voters, running, and lack (almost) nothing."""
    seen = admin.members.get(QUEUE)
    return seen.settled and all(
        member.voter and member.state == "running" for member in seen.members
    )


def wait_in_step(admin: Admin) -> None:
    """Until `in_step`; what is missing otherwise."""
    try:
        eventually(lambda: in_step(admin), "all members are in step", WAIT_S)
    except AssertionError:
        raise AssertionError(f"not in step: {admin.members.get(QUEUE)}") from None


@pytest.mark.specification("quorum-queues: When a new node is added to the cluster, it will host")
@pytest.mark.long
def test_a_fourth_node_joins_a_running_cluster_and_takes_members(
    cluster: LocalCluster, admin: Admin
) -> None:
    admin.queues.declare("held", arguments={"x-queue-type": "quorum"})
    bodies = publish(cluster, 2000)
    with Load(cluster, "held") as load:
        added = cluster.add_node()
        names = eventually(
            lambda: (n := [each.name for each in admin.nodes.list() if each.running])[3:] and n,
            "four nodes run",
        )
        assert names == ["node-0", "node-1", "node-2", added.name]
        assert voters(admin) == names[:3]
        states: list[str] = []
        grown = admin.waiting(
            WAIT_S, lambda seen: states.extend(each.member.state for each in seen.moving)
        ).nodes.grow(added.name, "all")
        assert [(each.name, each.size, each.error) for each in grown.queues] == [
            ("held", 4, ""),
            (QUEUE, 4, ""),
        ]
        assert voters(admin) == names
        load.goes_on()
        moved = admin.members.transfer(QUEUE, added.name)
        assert (moved.leader, moved.moved) == (added.name, True)
        assert drain(cluster, QUEUE, 3, 2000) == bodies, "what the new node leads is all there"
        load.finish()
    shrunk = admin.waiting(WAIT_S).nodes.shrink(added.name)
    assert [each.size for each in shrunk.queues] == [3, 3]
    assert voters(admin) == names[:3]
    assert admin.nodes.get(added.name).node.members == 0


def test_a_node_is_replaced_by_another(cluster: LocalCluster, admin: Admin) -> None:
    with Load(cluster, QUEUE) as load:
        added = cluster.add_node()
        admin.waiting(WAIT_S).nodes.grow(added.name, "all")
        cluster.stop_node("node-0")
        survivors = through(cluster, "node-1", "node-2", added.name)
        eventually(
            lambda: not survivors.nodes.get("node-0").node.running, "the stopped node is missed"
        )
        survivors.waiting(WAIT_S).nodes.forget("node-0")
        assert [each.name for each in survivors.nodes.list()] == ["node-1", "node-2", added.name]
        eventually(lambda: voters(survivors) == ["node-1", "node-2", added.name], "it is out")
        load.goes_on()
        # Its data directory is of no use any more: the cluster refuses it, and says why.
        cluster.spawn("node-0")
        eventually(lambda: not cluster.is_running("node-0"), "it is told, and ends")
        assert "was removed from the cluster" in cluster.log("node-0")
        load.goes_on()
        assert [each.name for each in survivors.nodes.list()] == ["node-1", "node-2", added.name]
        # Empty, it joins as a new node.
        cluster.wipe_node("node-0")
        cluster.start("node-0")
        eventually(
            lambda: (
                [each.name for each in survivors.nodes.list() if each.running]
                == ["node-0", "node-1", "node-2", added.name]
            ),
            "it is back as a new one",
        )
        assert "node-0" not in voters(survivors)
        load.finish()


@pytest.mark.long
def test_a_node_that_lost_its_disk_gets_everything_back(
    cluster: LocalCluster, admin: Admin
) -> None:
    bodies = publish(cluster, 3000, size=2000)
    victim = next(
        name for name in ("node-2", "node-1", "node-0") if name != admin.members.get(QUEUE).leader
    )
    admin.queues.declare("busy")
    with Load(cluster, "busy") as load:
        cluster.wipe_node(victim)
        load.goes_on()
        cluster.start(victim)
        wait_in_step(admin)
        eventually(
            lambda: all(each.metadata in ("leader", "follower") for each in admin.nodes.list()),
            "it counts for the definitions again",
            WAIT_S,
        )
        assert admin.members.transfer(QUEUE, victim).leader == victim
        assert drain(cluster, QUEUE, 0, 3000) == bodies
        load.finish()


@pytest.mark.specification("mirrored-queues: By default, RabbitMQ will refuse to promote")
def test_an_empty_disk_never_votes_on_what_it_does_not_have(
    cluster: LocalCluster, admin: Admin
) -> None:
    """1. node-2 is down while messages are confirmed by node-0, node-1.  2. node-0 dies, node-1
    loses its disk.  3. node-1, node-2 run: a majority by name, but none of them has the messages.
    """
    publish(cluster, 10)
    cluster.kill("node-2")
    bodies = [b"%08d" % i + b"." * 192 for i in range(10)]
    bodies += publish(cluster, 500)
    cluster.kill("node-0")
    cluster.wipe_node("node-1")
    cluster.start("node-1")
    cluster.start("node-2")
    confirmed = threading.Event()

    def try_to_publish() -> None:
        while not confirmed.is_set():
            try:
                with connect(cluster, 2) as connection:
                    channel = connection.channel()
                    channel.confirm_delivery()
                    channel.basic_publish("", QUEUE, b"later")
                    confirmed.set()
            except (AMQPError, OSError):
                confirmed.wait(0.2)

    thread = threading.Thread(target=try_to_publish, daemon=True)
    thread.start()
    assert not confirmed.wait(6), "confirmed by a majority that lost its memory"
    cluster.start("node-0")
    assert confirmed.wait(PATIENCE_S), "it continues when the node that remembers is back"
    thread.join(PATIENCE_S)
    wait_in_step(admin)
    got = drain(cluster, QUEUE, 1, 511)
    assert [body for body in got if body != b"later"] == bodies
    assert b"later" in got


def test_a_drained_node_leads_nothing_and_serves_nobody(
    cluster: LocalCluster, admin: Admin
) -> None:
    names = [f"q{i}" for i in range(9)]
    for name in names:
        admin.queues.declare(name, arguments={"x-queue-leader-locator": "balanced"})
    leader = admin.members.get(QUEUE).leader
    assert leader is not None
    others = [node.name for node in cluster.nodes if node.name != leader]
    asked = through(cluster, *others)
    with (
        connect(cluster, cluster.nodes.index(cluster.node(leader))) as inside,
        Load(cluster, QUEUE) as load,
    ):
        seen = asked.waiting(WAIT_S).nodes.drain(leader)
        assert seen.node.drained and seen.node.leaders == 0
        assert all(asked.members.get(name).leader != leader for name in (*names, QUEUE))
        with pytest.raises((ConnectionClosedByBroker, AMQPError)):
            inside.sleep(20)  # it is told to go
        with pytest.raises((AMQPError, OSError)):
            connect(cluster, cluster.nodes.index(cluster.node(leader)))
        assert asked.nodes.quorum_critical(leader).safe
        load.goes_on()
        assert asked.waiting(WAIT_S).nodes.revive(leader).node.drained is False
        eventually(
            lambda: connects(cluster, cluster.nodes.index(cluster.node(leader))), "it serves again"
        )
        asked.waiting(WAIT_S).members.rebalance()
        led = {
            name: [asked.members.get(q).leader for q in (*names, QUEUE)].count(name)
            for name in (leader, *others)
        }
        assert max(led.values()) - min(led.values()) <= 1, led
        load.finish()
    # A start ends maintenance, too.
    asked.waiting(WAIT_S).nodes.drain(leader)
    cluster.restart(leader)
    eventually(lambda: not asked.nodes.get(leader).node.drained, "a start ends maintenance")


def test_a_node_that_is_asked_to_drain_itself_answers_before_it_sends_its_clients_away(
    cluster: LocalCluster, admin: Admin
) -> None:
    for number in range(8):
        admin.queues.declare(f"q{number}", arguments={"x-queue-leader-locator": "balanced"})
    with Load(cluster, QUEUE) as load:
        for turn in range(6):
            index = turn % 3
            name = cluster.nodes[index].name
            seen = through(cluster, name).nodes.drain(name)
            assert seen.node.name == name and seen.node.drained
            eventually(lambda index=index: not connects(cluster, index), "it serves no client")
            assert not admin.waiting(WAIT_S).nodes.revive(name).node.drained
            eventually(lambda index=index: connects(cluster, index), "it serves again")
        load.goes_on()
        load.finish()


def connects(cluster: LocalCluster, node: int) -> bool:
    """Whether a client is served there."""
    try:
        connect(cluster, node).close()
    except (AMQPError, OSError):
        return False
    return True


@pytest.mark.specification(
    "quorum-queues: Failed and rejoining followers will automatically resume",
    "mirrored-queues: In general, as you restart other nodes",
)
def test_a_rolling_restart_that_asks_first_loses_nothing(
    cluster: LocalCluster, admin: Admin
) -> None:
    with Load(cluster, QUEUE) as load:
        for node in cluster.nodes:
            others = through(cluster, *(n.name for n in cluster.nodes if n is not node))
            eventually(
                lambda a=others, n=node: a.nodes.quorum_critical(n.name).safe, "it may stop", WAIT_S
            )
            others.waiting(WAIT_S).nodes.drain(node.name)
            cluster.stop_node(node.name)
            for other in cluster.nodes:
                if other is not node:
                    critical = eventually(
                        lambda a=others, n=other: (
                            not (found := a.nodes.quorum_critical(n.name)).safe and found
                        ),
                        "now every other one is critical",
                    )
                    assert critical.metadata and QUEUE in {q.name for q in critical.queues}
            load.goes_on()
            cluster.start(node.name)
        load.finish()
    eventually(
        lambda: all(each.running and not each.drained for each in admin.nodes.list()),
        "all run, none is in maintenance",
    )


def test_members_change_under_load_and_leaders_are_killed(
    cluster: LocalCluster, admin: Admin
) -> None:
    """Six changes, each with a kill -9 of the leader in the middle of it."""
    cluster.add_node()
    with Load(cluster, QUEUE) as load:
        present = "node-3" in voters(admin)
        for _ in range(6):
            change = admin.members.delete if present else admin.members.add
            change(QUEUE, "node-3")
            present = not present
            victim = cluster.leader_of(QUEUE)
            cluster.kill(victim)
            load.goes_on(5)
            cluster.start(victim)
            wait_in_step(admin)
            assert ("node-3" in voters(admin)) is present
        load.finish()


@pytest.mark.specification("quorum-queues: the queue is permanently unavailable and will need")
def test_a_queue_without_a_majority_can_be_deleted_unasked(
    cluster: LocalCluster, admin: Admin
) -> None:
    cluster.add_node()
    cluster.add_node()
    group_of_one = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}
    on_fourth = through(cluster, "node-4")
    on_fourth.queues.declare("alone", arguments=group_of_one)
    assert on_fourth.queues.get("alone").replicas == ("node-4",)
    cluster.kill("node-4")
    short = Admin(Connection(Address(hosts=cluster.address.hosts[:4], request_timeout_s=3)))
    with pytest.raises(Unavailable):
        short.queues.delete("alone")
    assert admin.queues.delete("alone", force=True) == 0
    assert [queue.name for queue in admin.queues.list()] == [QUEUE]
    cluster.start("node-4")
    eventually(lambda: all(each.running for each in admin.nodes.list()), "it is back")
    assert [queue.name for queue in admin.queues.list()] == [QUEUE]


@pytest.mark.long
def test_a_snapshot_on_its_way_is_shown_and_outlives_kills(
    cluster: LocalCluster, admin: Admin
) -> None:
    """150 MB: more than the log keeps, so that a new member gets a snapshot with what it names."""
    count, size = 150, 1 << 20
    with connect(cluster, 0) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for i in range(count):
            channel.basic_publish("", QUEUE, b"%08d" % i + b"." * (size - 8))
    added = cluster.add_node()
    admin.members.add(QUEUE, added.name)

    def on_its_way() -> tuple[int, int]:
        found = [m for m in admin.members.get(QUEUE).members if m.node == added.name]
        return (found[0].sent_bytes, found[0].total_bytes) if found else (0, 0)

    sent, total = eventually(lambda: (s := on_its_way())[1] and s, "a snapshot is on its way")
    assert 0 <= sent <= total and total > 60 << 20, (sent, total)
    for victim in (added.name, cluster.nodes[cluster.leader_of(QUEUE)].name):
        cluster.kill(victim)
        cluster.start(victim)
    wait_in_step(admin)
    assert added.name in voters(admin)
    assert admin.members.transfer(QUEUE, added.name).leader == added.name
    with connect(cluster, 3) as connection:
        channel = connection.channel()
        got = [channel.basic_get(QUEUE, auto_ack=True)[2] for _ in range(count)]
    assert [len(body) for body in got] == [size] * count
    assert [int(body[:8]) for body in got] == list(range(count))


def is_lost(connection: BlockingConnection) -> bool:
    """Whether the connection has ended, after what has arrived was handled."""
    try:
        connection.process_data_events(0.05)
    except AMQPError:
        return True
    return False


def test_a_node_removed_while_isolated_ends_when_it_learns_it(
    cluster: LocalCluster, admin: Admin
) -> None:
    """Before: it served its clients from the queues that it alone had, and confirmed, for good."""
    lone = "lone"
    with connect(cluster, 2) as there:
        channel = there.channel()
        channel.queue_declare(lone, durable=True, arguments={"x-queue-type": "classic"})
        cluster.pause(2)
        others = through(cluster, "node-0", "node-1")
        eventually(lambda: not others.nodes.get("node-2").node.running, "it is missed")
        assert others.waiting(WAIT_S).nodes.forget("node-2").lost == (("/", lone),)
        others.queues.declare(lone, arguments={"x-queue-type": "quorum"})
        cluster.resume(2)
        eventually(lambda: is_lost(there), "its client loses the connection")
    eventually(lambda: not cluster.is_running(2), "it ends")
    assert "this node was removed from the cluster with it" in cluster.log(2)
    assert not (cluster.node(2).data_dir / "ready.json").exists()
    assert [each.name for each in others.nodes.list()] == ["node-0", "node-1"]
