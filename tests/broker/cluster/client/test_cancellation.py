"""A consumer that is cancelled while messages for it are on the way."""

from __future__ import annotations

from typing import Any

from broker.cluster.client.test_late_acks import CONSUMER, Node
from warren_broker.queue.commands import Return


def returned(node: Node) -> list[Any]:
    """The returns that a turn sends."""
    return [each for sent in node.turn() for each in sent if isinstance(each, Return)]


def test_what_a_cancelled_consumer_never_saw_goes_back() -> None:
    node = Node()
    node.delivered(5)
    node.client.leave(CONSUMER)
    (command,) = returned(node)
    ((first, last),) = command.msg_ids
    assert (first, command.failed) == (5, False)
    assert last >= 1 << 62
    node.delivered(3)  # they were on their way, and are in the queue again
    assert node.client.consumers == {}
    node.client.leave(CONSUMER)
    assert returned(node) == []


def test_a_consumer_without_acknowledgements_has_nothing_to_return() -> None:
    node = Node()
    node.local.no_ack = True
    node.delivered(2)
    node.client.leave(CONSUMER)
    assert returned(node) == []
