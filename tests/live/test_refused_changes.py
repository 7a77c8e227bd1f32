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
        found.declare_queue("q", arguments=QUORUM)
        found.declare_queue("one", arguments={**QUORUM, "x-quorum-initial-group-size": 1})
        yield found


def test_nobody_and_nothing_of_that_name(admin: Admin) -> None:
    with pytest.raises(NotFound, match="no queue 'none' in vhost '/'"):
        admin.add_member("none", "node-0")
    with pytest.raises(NotFound, match="no queue 'none'"):
        admin.queue_members("none")
    for call in (
        lambda: admin.add_member("q", "nowhere"),
        lambda: admin.delete_member("q", "nowhere"),
        lambda: admin.grow("nowhere"),
        lambda: admin.shrink("nowhere"),
        lambda: admin.drain("nowhere"),
        lambda: admin.revive("nowhere"),
        lambda: admin.forget("nowhere"),
        lambda: admin.node_status("nowhere"),
        lambda: admin.quorum_critical("nowhere"),
        lambda: admin.transfer_leadership("q", "nowhere"),
    ):
        with pytest.raises(NotFound, match="'nowhere'.*node-0, node-1, node-2"):
            call()


def test_queues_that_live_on_one_node_have_no_members_to_change(admin: Admin) -> None:
    admin.declare_queue("plain", arguments={"x-queue-type": "classic"})
    for call in (
        lambda: admin.add_member("plain", "node-1"),
        lambda: admin.delete_member("plain", "node-1"),
        lambda: admin.transfer_leadership("plain", "node-1"),
    ):
        with pytest.raises(Conflict, match="classic"):
            call()


def test_the_last_member_stays(admin: Admin) -> None:
    (only,) = admin.queue("one").replicas
    with pytest.raises(Conflict, match="last member|only member"):
        admin.delete_member("one", only)
    (moved,) = admin.shrink(only, errors_only=True).queues or (None,)
    assert moved is not None and moved.name == "one" and moved.error
    assert admin.queue("one").replicas == (only,)
    admin.grow(only, "all", wait=60)


@pytest.mark.specification("quorum-queues: To successfully add and remove members a quorum")
def test_a_change_that_would_lose_the_majority(cluster: LocalCluster, admin: Admin) -> None:
    (alone,) = admin.queue("one").replicas
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
        eventually(lambda: not survivors.node_status(down).node.running, "it is missed")
        eventually(
            lambda: (
                [each.state for each in survivors.queue_members("q").members if each.node == down]
                == ["down"]
            ),
            "the leader misses it, too",
        )
        with pytest.raises(Conflict, match=r"majority.*start the others"):
            survivors.delete_member("q", other)
        assert sorted(survivors.queue_members("q").wanted) == NODES
        with pytest.raises(Conflict, match="not running"):
            survivors.add_member("one", down)
        with pytest.raises(Conflict, match="cannot lead now|not running"):
            survivors.transfer_leadership("q", down)
        with pytest.raises(Conflict, match="not running"):
            survivors.grow(down)
        with pytest.raises(Conflict, match="not running"):
            survivors.drain(down)
        critical = survivors.quorum_critical(other)
        assert critical.metadata and "q" in {queue.name for queue in critical.queues}
        # The dead one may go: two of two are left.
        survivors.delete_member("q", down, wait=60)
        eventually(
            lambda: (
                [each.node for each in survivors.queue_members("q").members]
                == sorted({leader, other})
            ),
            "it is out",
        )
    finally:
        cluster.start(down)
    eventually(lambda: survivors.node_status(down).node.running, "it is back")
    survivors.add_member("q", down, wait=60)


def test_a_node_that_runs_is_not_forgotten(admin: Admin) -> None:
    with pytest.raises(Conflict, match="is running; stop it"):
        admin.forget("node-1")
    assert [node.name for node in admin.nodes()] == NODES


def test_the_last_node_that_serves_is_not_drained(cluster: LocalCluster, admin: Admin) -> None:
    admin.drain("node-0", wait=60)
    admin.drain("node-1", wait=60)
    states = {node.name: (node.drained, node.running) for node in admin.nodes()}
    assert [states[name][0] for name in NODES] == [True, True, False], states
    with pytest.raises(Conflict, match="last one that serves clients"):
        admin.drain("node-2")
    (alone,) = admin.queue("one").replicas
    with pytest.raises(Conflict, match="in maintenance"):
        admin.add_member("one", "node-1" if alone == "node-0" else "node-0")
    with pytest.raises(Conflict, match="in maintenance"):
        admin.grow("node-1")
    admin.revive("node-0")
    admin.revive("node-1")
    eventually(lambda: not any(node.drained for node in admin.nodes()), "in service")


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
            admin.declare_queue("sized", arguments={**QUORUM, "x-quorum-initial-group-size": size})
    assert "sized" not in {queue.name for queue in admin.queues()}
    for size, members in ((1, 1), (2, 2), (3, 3), (4, 3), (10**6, 3)):
        made = admin.declare_queue(
            "sized", arguments={**QUORUM, "x-quorum-initial-group-size": size}
        )
        assert len(made.replicas) == members
        admin.delete_queue("sized")


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
            short.delete_member("q", "node-1")
        return str(raised.value)

    cluster.kill("node-1")
    cluster.kill("node-2")
    try:
        eventually(lambda: re.search("most of|out of reach|nobody", refusal()), "it says why")
        seen = short.queue_members("q")
        assert seen.leader is None and not seen.settled
    finally:
        cluster.start("node-1")
        cluster.start("node-2")
    eventually(lambda: admin.queue_members("q").settled, "it is whole again")


def test_who_is_no_administrator_changes_nothing(cluster: LocalCluster, admin: Admin) -> None:
    """Users cannot be made by clients yet: a wrong password is all that can be tried live; the tags
    are in tests/broker/server."""
    stranger = Address(hosts=cluster.address.hosts, user="guest", password="wrong")
    with Connection(stranger) as connection, pytest.raises(AccessRefused):
        Admin(connection).nodes()


def test_clients_notice_nothing_of_refusals(cluster: LocalCluster, admin: Admin) -> None:
    with connect(cluster, 1) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
        for _ in range(3):
            with pytest.raises(Conflict):
                admin.forget("node-1")
        channel.basic_publish("", "q", b"y")
        assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(2)] == [b"x", b"y"]
