"""An operator has what a queue keeps for a relay released."""

from __future__ import annotations

import pytest

from tests.machines.queue.test_relays import relay
from tests.machines.queue.world import Queue
from warren_machines.queue import commands as c
from warren_machines.queue.effects import CancelConsumer
from warren_machines.queue.relays.relay_commands import ReleaseRelay


def a_relay_away(taken: int = 3) -> Queue:
    """Five messages, of which a relay has taken some before its connection ended."""
    queue = Queue()
    queue.put(5)
    queue.do(relay(1, 1, taken))
    queue.do(c.SessionDown(1, True))
    return queue


def test_what_is_kept_is_ready_for_any_consumer_and_the_relay_is_forgotten() -> None:
    queue = a_relay_away()
    assert queue.stat().relays == (("r", 3, queue.now),)
    assert queue.do(ReleaseRelay("r")) == c.Count(3)
    assert not queue.state.relays and queue.stat().relays == ()
    assert queue.do(ReleaseRelay("r")) == c.Count(0) == queue.do(ReleaseRelay("other"))
    queue.do(c.Checkout(2, 2, "t", 10), uplink=2)
    assert [at for _, at in queue.names(2, uplink=2)] == [0, 1, 2, 3, 4]
    queue.state.check()


def test_a_relay_with_a_session_is_not_released_and_its_messages_are_counted() -> None:
    queue = a_relay_away()
    queue.do(relay(2, 2, 4))
    assert queue.stat().relays == (("r", 4, 0),)
    refused = queue.do(ReleaseRelay("r"))
    assert isinstance(refused, c.Refused) and refused.reason == "relay_in_use"
    assert queue.stat().relays == (("r", 4, 0),)
    queue.do(c.Cancel(2))
    assert isinstance(queue.do(ReleaseRelay("r")), c.Refused), "it may consume again"


def test_a_relay_on_a_node_that_is_suspected_is_released_and_its_consumer_ends() -> None:
    queue = Queue(consumer_disconnected_timeout_ms=60_000)
    queue.put(5)
    queue.do(relay(1, 1, 3))
    queue.submit(c.NodeSuspected("n1"), uplink=9, node="n9")
    released = queue.submit(ReleaseRelay("r"), uplink=9, node="n9")
    assert released.replies == (c.Count(3),)
    assert [one.reason for one in queue.of(CancelConsumer)] == ["disconnected"]
    queue.submit(c.NodeBack("n1"), uplink=9, node="n9")
    queue.do(c.Settle(1, ((1, 3),)))
    assert queue.stat().messages_ready == 5, "what it acknowledges is ready again"
    queue.do(relay(2, 2, 3))
    assert queue.stat().relays == (("r", 3, 0),)
    queue.state.check()


@pytest.mark.parametrize("limit", [-1, 0])
def test_a_release_is_no_failed_delivery(limit: int) -> None:
    queue = Queue(delivery_limit=limit)
    queue.put(2)
    queue.do(relay(1, 1, 2))
    queue.do(c.SessionDown(1, False))
    assert queue.do(ReleaseRelay("r")) == c.Count(2)
    assert queue.stat().messages_ready == 2
