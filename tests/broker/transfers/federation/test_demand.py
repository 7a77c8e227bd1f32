"""When a queue needs messages from upstream, on the queue machine itself."""

from __future__ import annotations

import pytest

from tests.machines.queue.world import Queue
from warren_broker.transfers.federation.links import has_demand
from warren_machines.queue.commands import (
    Cancel,
    Checkout,
    Credit,
    Get,
    NodeBack,
    NodeSuspected,
    OpenClaim,
    QueueCommand,
    RegisterReader,
    Settle,
)

CONSUMES = Checkout(1, 1, "a", prefetch=2)


def demand(*commands: QueueCommand, messages: int = 0) -> bool:
    """Whether a queue needs messages after that many were published and after these commands."""
    queue = Queue()
    if messages:
        queue.put(messages)
    for command in commands:
        queue.do(command)
    return has_demand(queue.state)


@pytest.mark.parametrize(
    ("needed", "messages", "commands"),
    [
        (False, 0, ()),
        (True, 0, (CONSUMES,)),
        (True, 0, (Checkout(1, 1, "a"),)),
        (True, 0, (Checkout(1, 1, "a", no_ack=True),)),
        (True, 1, (CONSUMES,)),  # it holds one, and has room for one more
        (False, 2, (CONSUMES,)),  # it holds as many as it may
        (True, 2, (CONSUMES, Settle(1, ((0, 0),)))),
        (False, 3, (CONSUMES, Settle(1, ((0, 0),)))),  # the third one has come to it
        (False, 1, ()),
    ],
)
def test_a_consumer_with_room_is_demand_while_the_queue_is_empty(
    needed: bool, messages: int, commands: tuple[QueueCommand, ...]
) -> None:
    assert demand(*commands, messages=messages) is needed


def test_credit_of_amqp_1_0_is_demand_until_it_is_used() -> None:
    link = Checkout(1, 1, "a", explicit_credit=True)
    assert not demand(link)
    assert demand(link, Credit(1, 0, 2))
    assert demand(link, Credit(1, 0, 2), messages=1)
    assert not demand(link, Credit(1, 0, 2), messages=2)
    assert not demand(link, Credit(1, 0, 2, drain=True))


def test_consumers_of_lower_priority_are_none_as_links_of_other_brokers_are() -> None:
    below, above = Checkout(1, 1, "a", priority=-1), Checkout(2, 2, "b", 1, priority=7)
    assert not demand(below)
    assert demand(below, above)
    assert not demand(below, above, Cancel(2))
    assert not demand(above, below, messages=1)  # the one that counts has no room


def test_neither_get_nor_a_claim_is_demand_and_a_claim_hides_none() -> None:
    assert not demand(Get(1, 1), Get(1, 1), messages=1)
    claim = (RegisterReader("r"), OpenClaim("r", 1, 1, 10, 1 << 20))
    assert not demand(*claim)
    assert not demand(*claim, messages=5)
    # What is in a claim is not ready: a consumer beside it needs others.
    assert demand(*claim, CONSUMES, messages=5)


def test_a_consumer_on_a_node_that_is_out_of_reach_is_no_demand() -> None:
    assert not demand(CONSUMES, NodeSuspected("n1"))
    assert demand(CONSUMES, NodeSuspected("n1"), NodeBack("n1"))


def test_with_a_single_active_consumer_only_that_one_counts() -> None:
    queue = Queue(single_active_consumer=True)
    queue.do(Checkout(1, 1, "a", prefetch=1))
    queue.do(Checkout(2, 2, "b", prefetch=5))
    assert has_demand(queue.state)
    queue.put()
    assert not has_demand(queue.state)  # the second one waits for the first, not for messages
    queue.do(Cancel(1))
    assert has_demand(queue.state)
