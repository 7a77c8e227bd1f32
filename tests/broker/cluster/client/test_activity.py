"""What a node tells its consumers of the single active one: the newest word, once."""

from __future__ import annotations

from broker.cluster.client.test_late_acks import CONSUMER, Node
from warren_machines.queue.effects import ActiveIs


def test_a_slow_message_of_an_earlier_leader_changes_nothing() -> None:
    """1. A leader says "active".  2. Its successor says "not".  3. The first message arrives."""
    node = Node()
    heard: list[bool] = []
    node.local.activity = heard.append
    node.client.tell_active(ActiveIs(1, CONSUMER, False, 12))
    node.client.tell_active(ActiveIs(1, CONSUMER, True, 11))
    node.client.tell_active(ActiveIs(1, CONSUMER, False, 12))
    assert heard == [False]
    node.client.tell_active(ActiveIs(1, CONSUMER, True, 13))
    assert heard == [False, True]


def test_what_is_not_wanted_or_not_known_is_dropped() -> None:
    node = Node()
    node.client.tell_active(ActiveIs(1, CONSUMER, True, 1))  # a consumer over AMQP 0.9.1
    node.client.tell_active(ActiveIs(1, CONSUMER + 1, True, 1))
    assert node.local.active_index == 0
