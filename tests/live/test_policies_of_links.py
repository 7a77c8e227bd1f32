"""What a policy that is set later does to AMQP 1.0 links, on whatever node they are.

As in RabbitMQ 4.3: tests/differ/scenarios/links.py has the same on one node of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from proton import Delivery, Link, Message, Timeout
from proton.utils import LinkDetached

from live.conftest import Broker, eventually
from live.test_amqp10 import WAIT_S, addresses, connected, counts, declare, publish
from warren.admin import Admin
from warren.connection import Connection

pytestmark = [pytest.mark.live]
__all__ = ["addresses"]
Setter = Callable[..., None]


@pytest.fixture
def policy(broker: Broker, queue_name: str) -> Iterator[Setter]:
    """Set a policy of the test's queue, and wait until the queue follows it."""
    name = f"policy.{queue_name}"
    with Connection(broker.uri) as operator:
        admin = Admin(operator)

        def put(**definition: Any) -> None:
            said = {key.replace("_", "-"): value for key, value in definition.items()}
            pattern = f"^{re.escape(queue_name)}$"
            admin.policies.put("/", name, pattern, said, apply_to="queues")
            eventually(lambda: admin.queues.get(queue_name).policy == name, "the queue has it")

        yield put
        admin.policies.delete("/", name)


def test_a_consumer_timeout_holds_for_links_that_attach_later(
    addresses, channel, queue_name, broker, policy
):
    """The earlier link keeps its message; the later one's is released, and goes to the first."""
    declare(channel, queue_name)
    address = f"/queues/{queue_name}"
    leader = broker.cluster.leader_of(queue_name)
    far, near = (leader + 1) % 3, leader
    with connected(addresses[far]) as one, connected(addresses[near]) as two:
        earlier = one.create_receiver(address, credit=0)
        publish(two, queue_name, "kept")
        assert earlier.receive(timeout=WAIT_S).body == "kept"
        policy(consumer_timeout=1_000)
        publish(two, queue_name, "released")
        later = eventually(lambda: _timed_out(two, address), "the leader follows the policy")
        assert not earlier.fetcher.unsettled[0].remote_state
        earlier.accept()
        message = earlier.receive(timeout=WAIT_S)
        assert (message.body, message.delivery_count) == ("released", 0)
        assert message.annotations["x-acquired-count"] >= 1
        earlier.accept()
        (held,) = later.fetcher.unsettled
        held.update(Delivery.ACCEPTED)  # too late; and from then on the link gets messages again
        held.settle()
        later.fetcher.unsettled.clear()
        publish(one, queue_name, "next")
        assert later.receive(timeout=WAIT_S).body == "next"
        later.accept()
    eventually(lambda: counts(channel, queue_name) == 0, "nothing is left")


def _timed_out(connection: Any, address: str) -> Any:
    """A receiver of which the delivery was released in time; None: its consumer has no timeout.

    The definitions show a policy before the queue's leader follows it: a consumer that comes in
    between has none.
    """
    receiver = connection.create_receiver(address, credit=0)
    assert receiver.receive(timeout=WAIT_S).body == "released"
    (held,) = receiver.fetcher.unsettled
    try:
        connection.wait(lambda: held.remote_state == Delivery.RELEASED, timeout=10.0)
    except Timeout:
        receiver.release(delivered=False)
        receiver.close()
        return None
    assert receiver.link.state & Link.REMOTE_ACTIVE and not held.settled
    return receiver


def test_a_queue_that_expires_detaches_its_publishers_on_every_node(
    addresses, channel, queue_name, policy
):
    """Not while it has a consumer: its link stays."""
    declare(channel, queue_name)
    with connected(addresses[0]) as one, connected(addresses[1]) as two:
        links = [each.create_sender(f"/queues/{queue_name}") for each in (one, two)]
        consumer = two.create_receiver(f"/queues/{queue_name}", credit=0)
        policy(expires=300)
        with pytest.raises(Timeout):
            two.wait(lambda: bool(consumer.link.state & Link.REMOTE_CLOSED), timeout=1.0)
        for link in links:
            assert link.send(Message(body="m")).remote_state == Delivery.ACCEPTED
        consumer.close()
        for connection, link in zip((one, two), links, strict=True):
            with pytest.raises(LinkDetached, match="amqp:resource-deleted"):
                connection.wait(lambda: False, timeout=WAIT_S)
            assert link.link.state & Link.REMOTE_CLOSED
