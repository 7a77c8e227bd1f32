"""Changes of members that must not be: refused with the reason and the way out, nothing changed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker

from live.conftest import eventually
from live.load import connect
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.errors import AccessRefused, Conflict, NotFound, PeerError, Unavailable
from warren.local import LocalCluster
from warren.uri import Address

pytestmark = [pytest.mark.live, pytest.mark.slow]
QUORUM = {"x-queue-type": "quorum"}
NODES = ["node-0", "node-1", "node-2"]


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    """Asks whichever node answers; `q` has three members, `one` one."""
    with Connection(
        Address(hosts=cluster.address.hosts, request_timeout_s=PATIENCE_S)
    ) as connection:
        found = Admin(connection)
        found.queues.declare("q", arguments=QUORUM)
        found.queues.declare("one", arguments={**QUORUM, "x-quorum-initial-group-size": 1})
        yield found


def test_nobody_and_nothing_of_that_name(admin: Admin) -> None:
    with pytest.raises(NotFound, match="no queue 'none' in vhost '/'"):
        admin.members.add("none", "node-0")
    with pytest.raises(NotFound, match="no queue 'none'"):
        admin.members.get("none")
    for call in (
        lambda: admin.members.add("q", "nowhere"),
        lambda: admin.members.delete("q", "nowhere"),
        lambda: admin.nodes.grow("nowhere", "all"),
        lambda: admin.nodes.shrink("nowhere"),
        lambda: admin.nodes.drain("nowhere"),
        lambda: admin.nodes.revive("nowhere"),
        lambda: admin.nodes.forget("nowhere"),
        lambda: admin.nodes.get("nowhere"),
        lambda: admin.nodes.quorum_critical("nowhere"),
        lambda: admin.members.transfer("q", "nowhere"),
    ):
        with pytest.raises(NotFound, match="'nowhere'.*node-0, node-1, node-2"):
            call()


def test_queues_that_live_on_one_node_have_no_members_to_change(admin: Admin) -> None:
    admin.queues.declare("plain", arguments={"x-queue-type": "classic"})
    for call in (
        lambda: admin.members.add("plain", "node-1"),
        lambda: admin.members.delete("plain", "node-1"),
        lambda: admin.members.transfer("plain", "node-1"),
    ):
        with pytest.raises(Conflict, match="classic"):
            call()


def test_the_last_member_stays(admin: Admin) -> None:
    (only,) = admin.queues.get("one").replicas
    with pytest.raises(Conflict, match="last member|only member"):
        admin.members.delete("one", only)
    (moved,) = admin.nodes.shrink(only, errors_only=True).queues or (None,)
    assert moved is not None and moved.name == "one" and moved.error
    assert admin.queues.get("one").replicas == (only,)
    admin.waiting(60).nodes.grow(only, "all")


@pytest.mark.specification("quorum-queues: To successfully add and remove members a quorum")
def test_a_change_that_would_lose_the_majority(cluster: LocalCluster, admin: Admin) -> None:
    (alone,) = admin.queues.get("one").replicas
    leader = cluster.nodes[cluster.leader_of("q")].name
    # The one that is stopped has no member of `one` yet.
    down, other = sorted(set(NODES) - {leader}, key=lambda name: name == alone)
    cluster.kill(down)
    survivors = Admin(
        Connection(
            Address(
                hosts=tuple(
                    ("127.0.0.1", cluster.node(name).amqp_port) for name in (leader, other)
                ),
                request_timeout_s=PATIENCE_S,
            )
        )
    )
    try:
        eventually(lambda: not survivors.nodes.get(down).node.running, "it is missed")
        eventually(
            lambda: (
                [each.state for each in survivors.members.get("q").members if each.node == down]
                == ["down"]
            ),
            "the leader misses it, too",
        )
        with pytest.raises(Conflict, match=r"majority.*start the others"):
            survivors.members.delete("q", other)
        assert sorted(survivors.members.get("q").wanted) == NODES
        with pytest.raises(Conflict, match="not running"):
            survivors.members.add("one", down)
        with pytest.raises(Conflict, match="cannot lead now|not running"):
            survivors.members.transfer("q", down)
        with pytest.raises(Conflict, match="not running"):
            survivors.nodes.grow(down, "all")
        with pytest.raises(Conflict, match="not running"):
            survivors.nodes.drain(down)
        critical = survivors.nodes.quorum_critical(other)
        assert critical.metadata and "q" in {queue.name for queue in critical.queues}
        # The dead one may go: two of two are left.
        survivors.waiting(60).members.delete("q", down)
        eventually(
            lambda: (
                [each.node for each in survivors.members.get("q").members]
                == sorted({leader, other})
            ),
            "it is out",
        )
    finally:
        cluster.start(down)
    eventually(lambda: survivors.nodes.get(down).node.running, "it is back")
    survivors.waiting(60).members.add("q", down)


def test_a_node_that_runs_is_not_forgotten(admin: Admin) -> None:
    with pytest.raises(Conflict, match="is running; stop it"):
        admin.nodes.forget("node-1")
    assert [node.name for node in admin.nodes.list()] == NODES


def test_the_last_node_that_serves_is_not_drained(cluster: LocalCluster, admin: Admin) -> None:
    admin.waiting(60).nodes.drain("node-0")
    admin.waiting(60).nodes.drain("node-1")
    states = {node.name: (node.drained, node.running) for node in admin.nodes.list()}
    assert [states[name][0] for name in NODES] == [True, True, False], states
    with pytest.raises(Conflict, match="last one that serves clients"):
        admin.nodes.drain("node-2")
    (alone,) = admin.queues.get("one").replicas
    with pytest.raises(Conflict, match="in maintenance"):
        admin.members.add("one", "node-1" if alone == "node-0" else "node-0")
    with pytest.raises(Conflict, match="in maintenance"):
        admin.nodes.grow("node-1", "all")
    admin.nodes.revive("node-0")
    admin.nodes.revive("node-1")
    eventually(lambda: not any(node.drained for node in admin.nodes.list()), "in service")


@pytest.mark.specification("quorum-queues: The group size argument provided should be")
def test_group_sizes_that_cannot_be(cluster: LocalCluster, admin: Admin) -> None:
    for size in (0, -1, "3"):
        with connect(cluster, 0) as connection:
            channel = connection.channel()
            with pytest.raises(ChannelClosedByBroker) as caught:
                channel.queue_declare(
                    "sized",
                    durable=True,
                    arguments={**QUORUM, "x-quorum-initial-group-size": size},
                )
            assert caught.value.reply_code == 406, caught.value
            assert "x-quorum-initial-group-size" in caught.value.reply_text
        with pytest.raises(PeerError, match="x-quorum-initial-group-size"):
            admin.queues.declare("sized", arguments={**QUORUM, "x-quorum-initial-group-size": size})
    assert "sized" not in {queue.name for queue in admin.queues.list()}
    for size, members in ((1, 1), (2, 2), (3, 3), (4, 3), (10**6, 3)):
        made = admin.queues.declare(
            "sized", arguments={**QUORUM, "x-quorum-initial-group-size": size}
        )
        assert len(made.replicas) == members
        admin.queues.delete("sized")


def test_a_queue_without_leader_says_who_must_be_started(
    cluster: LocalCluster, admin: Admin
) -> None:
    short = Admin(
        Connection(
            Address(hosts=(("127.0.0.1", cluster.node("node-0").amqp_port),), request_timeout_s=6)
        )
    )

    def refusal() -> str:
        with pytest.raises(Unavailable) as raised:
            short.members.delete("q", "node-1")
        return str(raised.value)

    cluster.kill("node-1")
    cluster.kill("node-2")
    try:
        eventually(lambda: re.search("most of|out of reach|nobody", refusal()), "it says why")
        seen = short.members.get("q")
        assert seen.leader is None and not seen.settled
    finally:
        cluster.start("node-1")
        cluster.start("node-2")
    eventually(lambda: admin.members.get("q").settled, "it is whole again")


def test_who_is_no_administrator_changes_nothing(cluster: LocalCluster, admin: Admin) -> None:
    """Users cannot be made by clients yet: a wrong password is all that can be tried live; the tags
    are in tests/broker/listeners."""
    stranger = Address(hosts=cluster.address.hosts, user="guest", password="wrong")
    with Connection(stranger) as connection, pytest.raises(AccessRefused):
        Admin(connection).nodes.list()


def test_clients_notice_nothing_of_refusals(cluster: LocalCluster, admin: Admin) -> None:
    with connect(cluster, 1) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
        for _ in range(3):
            with pytest.raises(Conflict):
                admin.nodes.forget("node-1")
        channel.basic_publish("", "q", b"y")
        assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(2)] == [b"x", b"y"]
