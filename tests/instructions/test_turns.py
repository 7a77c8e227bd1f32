"""No message takes more Python function calls than this, where messages pass one by one."""

from __future__ import annotations

import socket
from typing import Any
from unittest import mock

import pytest

from tests.instructions import turns
from tests.wire.kernel import frames
from warren_broker.clients091.client091 import PATIENT_AFTER, Client091
from warren_wire import kernel

CALLS_MAX = {"leader": 460, "follower": 148, "last": 54}
"""Calls per message; a little more than there are. Lower them when there are fewer."""
WAITS_MAX = {"append": 181, "answer": 98, "confirm": 158}
"""Calls of a turn before what a client or another node waits for leaves."""


def test_a_message_takes_no_more_calls_than_before() -> None:
    if kernel.ACTIVE != "compiled":
        pytest.skip("the kernel is interpreted")
    found = turns.measure()
    for role, calls_max in CALLS_MAX.items():
        text = found.text(role)
        print(text)
        assert calls_max * 0.8 < found.per_message(role) <= calls_max, text
    assert found.waits.keys() == WAITS_MAX.keys(), found.waits
    assert all(found.waits[what] <= most for what, most in WAITS_MAX.items()), found.waits
    assert found.turns[found.leader] / turns.MESSAGES < 2.3, "published, and replicated"
    assert found.turns[found.follower] / turns.MESSAGES < 1.2, (
        "one append, its answer before it applies"
    )
    assert found.turns[found.last] / turns.MESSAGES < 0.1, "one append for many messages"


def test_the_confirm_leaves_before_the_delivery_is_made() -> None:
    """The publisher waits for it, and the consumer for neither of the two."""
    confirmed: list[bool] = []
    deliver = Client091.deliver
    with turns.cluster() as made:
        traffic = turns.Traffic(made)

        def watched(client: Client091, *given: Any) -> None:
            try:
                there = traffic.publisher.socket.recv(65_536, socket.MSG_PEEK)
            except BlockingIOError:
                there = b""
            confirmed.append(turns.CONFIRM in there)
            deliver(client, *given)

        with mock.patch.object(Client091, "deliver", watched):
            for _ in range(20):
                traffic.message()
    assert len(confirmed) == 20
    assert all(confirmed), confirmed


def test_an_acknowledgement_that_comes_right_after_a_message_is_of_its_entry() -> None:
    """It had one of its own, and while that was synced the answer to the message's waited."""
    proposed: list[int] = []
    with turns.cluster() as made:
        traffic = turns.Traffic(made, prefetch=1)
        host = made.nodes[traffic.leader].host
        propose, received = host.propose, Client091.received

        def counted(group: int, data: bytes) -> int:
            proposed.append(group)
            return propose(group, data)

        def meanwhile(client: Client091, data: bytes) -> None:
            if turns.BODY in data and traffic.number > 1:
                traffic.consumer.send(frames.ack(1, traffic.number - 1))
            received(client, data)

        with (
            mock.patch.object(host, "propose", counted),
            mock.patch.object(Client091, "received", meanwhile),
        ):
            for _ in range(10):
                traffic.publish()
    assert len(proposed) == 10, "and each message was delivered when its entry was committed"


def test_an_acknowledgement_of_a_consumer_with_credit_begins_no_turn() -> None:
    """Nor does the wait for it: a message that comes meanwhile takes it along."""
    with turns.cluster() as made:
        traffic = turns.Traffic(made, prefetch=20)

        def acknowledge() -> int:
            before = made.turns[traffic.leader]
            traffic.consumer.send(frames.ack(1, traffic.number))
            made.settle()
            return made.turns[traffic.leader] - before

        for _ in range(PATIENT_AFTER + 2):
            traffic.message()
        traffic.publish()
        assert not acknowledge()
        made.pass_ms(10)
        before = made.turns[traffic.leader]
        traffic.publish()
        assert made.turns[traffic.leader] - before == 2, "with the message, and it is replicated"
        for _ in range(10):
            traffic.publish()
        assert acknowledge(), "half of the credit is used"
