"""A consumer that is cancelled while messages for it are on the way."""

from __future__ import annotations

from typing import Any

from broker.cluster.client.test_late_acks import CONSUMER, Node
from warren_broker.cluster.client.read_ahead import MSG_ID_MAX
from warren_broker.cluster.client.uplink import COMMANDS_MAX
from warren_machines.queue.commands import Cancel, Return


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


def test_without_acknowledgements_what_has_not_arrived_goes_back_before_the_end() -> None:
    """Its end settles what it holds, as if that had been sent; it was lost before.

    Between two submissions the queue could give it more: both commands are of one.
    """
    for held in (0, COMMANDS_MAX - 1, COMMANDS_MAX - 2):
        node = Node()
        node.local.no_ack = True
        node.delivered(2)
        for _ in range(held):
            node.client.uplink.command("another")
        assert node.client.give_back_unsent(CONSUMER)
        node.client.command(Cancel(CONSUMER))
        node.turn()
        assert node.submissions[-1][-2:] == [
            Return(CONSUMER, ((2, MSG_ID_MAX),), failed=False, unseen=True),
            Cancel(CONSUMER),
        ]
        node.delivered(3)
        assert node.local.next_msg_id == 2, "they are in the queue again"
        node.client.leader_found("b", 2)
        node.client.leave(CONSUMER)
        assert not node.client.give_back_unsent(CONSUMER)
        assert not [each for sent in node.turn() for each in sent]


def test_with_acknowledgements_nothing_goes_back_before_the_end() -> None:
    node = Node()
    node.delivered(2)
    assert not node.client.give_back_unsent(CONSUMER) and node.turn() == []
