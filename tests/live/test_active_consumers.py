"""A link's client learns whether its consumer is the single active one, on whatever node."""

from __future__ import annotations

import pika
import pytest

from live.conftest import eventually
from live.test_amqp10 import addresses, connected, declare, publish
from live.watched_links import WatchedLink
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster

pytestmark = [pytest.mark.live]
__all__ = ["addresses"]
WAIT_S = 60.0


def test_two_links_on_two_nodes_hear_of_each_change(broker, addresses, channel, queue_name):
    declare(channel, queue_name, single_active_consumer=True)
    leader = broker.cluster.leader_of(queue_name)
    far, near = (leader + 1) % 3, leader
    with WatchedLink(addresses[far], queue_name) as first:
        first.until([True])
        with WatchedLink(addresses[near], queue_name) as second:
            second.until([False])
            third = WatchedLink(addresses[far], queue_name)
            third.until([False])
            first.detach()
            second.until([False, True])
            second.lose()
            third.until([False, True])
            with connected(addresses[0]) as connection:
                publish(connection, queue_name, "m")
            assert [each.body for each in third.messages(1)] == ["m"]
            third.lose()
    assert first.active() == [True]


def test_a_link_that_waits_is_told_after_its_first_credit(addresses, channel, queue_name):
    declare(channel, queue_name, single_active_consumer=True)
    with WatchedLink(addresses[0], queue_name, credit=0) as active:
        active.until([True])
        with WatchedLink(addresses[1], queue_name, credit=0) as link:
            for _ in range(10):
                link.turn()
            assert link.said == []
            link.receiver.flow(1)
            link.until([False])


def test_a_queue_without_a_single_active_consumer_says_true(addresses, channel, queue_name):
    declare(channel, queue_name)
    with (
        WatchedLink(addresses[0], queue_name) as one,
        WatchedLink(addresses[2], queue_name) as other,
    ):
        one.until([True])
        other.until([True])
        one.detach()
        other.turn()
        assert other.active() == [True]


def test_a_classic_queue_says_nothing(addresses, channel, queue_name):
    """As in RabbitMQ."""
    arguments = {"x-queue-type": "classic", "x-single-active-consumer": True}
    channel.queue_declare(queue_name, durable=True, arguments=arguments)
    channel.basic_publish("", queue_name, b"m")
    with WatchedLink(addresses[0], queue_name) as link:
        assert len(link.messages(1)) == 1
        assert link.said == []


def test_a_higher_priority_takes_over_when_the_first_has_settled(addresses, channel, queue_name):
    declare(channel, queue_name, single_active_consumer=True)
    with WatchedLink(addresses[0], queue_name, credit=1) as low:
        low.until([True])
        with connected(addresses[0]) as connection:
            publish(connection, queue_name, "a", "b")
        eventually(lambda: low.turn() or low.receiver.current is not None, "it has one")
        with WatchedLink(addresses[1], queue_name, priority=5) as high:
            high.until([False])
            assert low.active() == [True]
            low.messages(1)
            low.until([True, False])
            high.until([False, True])
            assert [each.body for each in high.messages(1)] == ["b"]
            high.detach()
        low.until([True, False, True])


@pytest.mark.slow
def test_it_is_told_of_changes_after_the_death_of_leaders_and_nodes(tmp_path):
    with LocalCluster(nodes=3, directory=tmp_path) as cluster:
        parameters = pika.URLParameters(f"amqp://guest:guest@{cluster.addresses[0]}/%2F")
        with pika.BlockingConnection(parameters) as connection:
            declare(connection.channel(), "q", single_active_consumer=True)
        leader = cluster.leader_of("q")
        other, third = (number for number in range(3) if number != leader)
        with Connection(cluster.node_address(other)) as operator:
            admin = Admin(operator)
            at_leader = WatchedLink(cluster.addresses[leader], "q")
            at_leader.until([True])
            with (
                WatchedLink(cluster.addresses[other], "q") as one,
                WatchedLink(cluster.addresses[third], "q") as two,
            ):
                one.until([False])
                two.until([False])
                # Another leader: what it says again is not told again.
                admin.members.transfer("q", cluster.nodes[other].name)
                two.lose()
                eventually(lambda: cluster.leader_of("q") == other, "it leads", WAIT_S)
                assert one.active() == [False]
                # The active one's node dies.
                cluster.kill(leader)
                one.until([False, True])
                with WatchedLink(cluster.addresses[third], "q") as late:
                    late.until([False])
                    one.detach()
                    late.until([False, True])
            at_leader.lose()


@pytest.mark.slow
def test_a_link_whose_node_was_cut_off_learns_that_another_one_is_active(tmp_path):
    with LocalCluster(nodes=3, directory=tmp_path) as cluster:
        parameters = pika.URLParameters(f"amqp://guest:guest@{cluster.addresses[0]}/%2F")
        with pika.BlockingConnection(parameters) as connection:
            declare(connection.channel(), "q", single_active_consumer=True)
        leader = cluster.leader_of("q")
        stopped, third = (number for number in range(3) if number != leader)
        with (
            WatchedLink(cluster.addresses[stopped], "q") as one,
            WatchedLink(cluster.addresses[third], "q") as two,
        ):
            one.until([True])
            two.until([False])
            cluster.pause(stopped)
            two.until([False, True])
            cluster.resume(stopped)
            one.until([True, False])
