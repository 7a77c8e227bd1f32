"""What the user of a node's own links may do, and that it may do nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import get_args

import pytest

from broker.cluster.universe import Universe
from warren_broker.access import Access
from warren_broker.errors import AccessRefused
from warren_broker.permissions import Tag

OWN_QUEUE = "amq.gen-0123456789abcdefghijkl"
REFUSED: tuple[Callable[[Access], None], ...] = (
    lambda access: access.read_queue("q"),
    lambda access: access.read_queue(OWN_QUEUE),
    lambda access: access.declare_queue("q", {}),
    lambda access: access.declare_queue("q", {}, passive=True),
    lambda access: access.declare_queue("my.amq.gen-q", {}),
    lambda access: access.declare_queue(OWN_QUEUE, {"x-dead-letter-exchange": ""}),
    lambda access: access.delete_queue("q"),
    lambda access: access.publish_stages("q"),
    lambda access: access.publish("amq.direct", ("k",)),
    lambda access: access.publish("amq.topic", ("k",)),
    lambda access: access.declare_exchange("e", {}),
    lambda access: access.declare_exchange("amq.direct", {}, passive=True),
    lambda access: access.delete_exchange("e"),
    lambda access: access.bind("amq.direct", "q", True, "k"),
    lambda access: access.bind("amq.direct", OWN_QUEUE, True, "k"),
)


@pytest.fixture
def universe() -> Iterator[Universe]:
    made = Universe()
    made.until(made.ready, "the cluster is formed")
    yield made
    made.close()


def test_the_user_of_links_publishes_to_queues_and_does_nothing_else(universe: Universe) -> None:
    definitions = universe.running["a"].broker.definitions
    user, password = definitions.own_login
    assert definitions.authenticate(user, password)
    assert not definitions.authenticate(user, "")
    assert not definitions.authenticate(user, password + "0")
    assert not universe.running["b"].broker.definitions.authenticate(user, password)
    assert user not in definitions.state.users
    access = Access(definitions, "/", user)
    access.publish("", ("q",))
    access.declare_queue(OWN_QUEUE, {})
    access.delete_queue(OWN_QUEUE)
    for call in REFUSED:
        with pytest.raises(AccessRefused):
            call(access)
    for tag in get_args(Tag):
        with pytest.raises(AccessRefused):
            access.must_be(tag, "look")
    with pytest.raises(AccessRefused):
        Access(definitions, "missing", user).publish("", ("q",))
