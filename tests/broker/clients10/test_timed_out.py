"""A client that holds deliveries for too long: released, its link stays, and waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from proton import Delivery

from tests.broker.clients10.test_connection import Client
from tests.broker.clients10.test_links import (
    CONSUMER,
    OUTCOMES,
    asked,
    consumer,
    deliver,
    opened,
    received,
)
from warren_broker.clients10 import link_requests as asks
from warren_machines.queue import commands
from warren_machines.queue.commands import Delivery as Run
from warren_wire import errors
from warren_wire.block.block import Block, encode

NEXT = CONSUMER + 1


def holding(*bodies: bytes, **said: Any) -> tuple[Client, Any, list[Delivery]]:
    """A client that has received messages, its link and the deliveries; no request is left."""
    client = opened()
    receiver = consumer(client, **said)
    deliver(client, bodies)
    held = [delivery for delivery, _ in received(receiver)]
    assert len(held) == len(bodies)
    client.answers[asks.Consume] = asks.Consuming(NEXT)
    client.requests.clear()
    return client, receiver, held


def time_out(client: Client, *msg_ids: tuple[int, int], consumer: int = CONSUMER) -> bool:
    """Return whether the link says that it is the first time."""
    first = client.connection.timed_out(consumer, msg_ids)
    client.turn()
    return first


def settle(client: Client, delivery: Delivery, state: int = Delivery.ACCEPTED) -> None:
    delivery.update(state)
    delivery.settle()
    client.turn()


def block_of(*bodies: bytes) -> Block:
    return Block.decode(encode(list(bodies), [b""] * len(bodies), (b"", b"q"), 4, None))


def test_what_is_overdue_is_released_and_not_settled_and_the_link_stays() -> None:
    client, receiver, held = holding(b"a", b"b", b"c")
    assert time_out(client, (0, 0), (2, 2))
    assert [each.remote_state for each in held] == [Delivery.RELEASED, 0, Delivery.RELEASED]
    assert not any(each.settled for each in held)
    assert not receiver.state & receiver.REMOTE_CLOSED
    (again,) = asked(client, asks.Consume)
    assert (again.queue, again.link) == ("q", receiver.name)


def test_of_many_with_gaps_only_the_overdue_are_released() -> None:
    client, _, held = holding(*(b"%d" % i for i in range(60)))
    time_out(client, *((first, first + 1) for first in range(3, 55, 4)))
    released = [at for at, each in enumerate(held) if each.remote_state == Delivery.RELEASED]
    assert released == [at for at in range(3, 55) if (at - 3) % 4 < 2]


def test_nothing_is_given_before_all_that_was_released_is_settled() -> None:
    client, _, held = holding(b"a", b"b", b"c")
    time_out(client, (0, 1))
    settle(client, held[0], Delivery.RELEASED)
    assert not asked(client, asks.GrantCredit)
    settle(client, held[1], Delivery.RELEASED)
    assert asked(client, asks.GrantCredit) == [asks.GrantCredit(NEXT, 0, 97)]
    assert not asked(client, *OUTCOMES.values()), "they are in the queue again"
    assert not asked(client, asks.EndConsumer), "the client holds the third"
    settle(client, held[2])
    (accepted,) = asked(client, *OUTCOMES.values())
    assert accepted == commands.Settle(CONSUMER, ((2, 2),))
    assert asked(client, asks.EndConsumer) == [asks.EndConsumer(CONSUMER, False)]


@pytest.mark.parametrize("state", [Delivery.ACCEPTED, Delivery.REJECTED, Delivery.MODIFIED])
def test_an_outcome_that_comes_too_late_changes_nothing(state: int) -> None:
    client, _, (late,) = holding(b"a")
    time_out(client, (0, 0))
    settle(client, late, state)
    assert not asked(client, *OUTCOMES.values())
    assert asked(client, asks.GrantCredit) == [asks.GrantCredit(NEXT, 0, 99)]


def test_messages_of_the_new_consumer_have_tags_of_their_own() -> None:
    client, receiver, held = holding(b"a", b"b")
    time_out(client, (0, 0))
    settle(client, held[0], Delivery.RELEASED)
    client.requests.clear()
    client.connection.deliver(NEXT, Run(0, 5, 0, 1), block_of(b"c", b"d"))
    client.turn()
    (third, message), (fourth, _) = received(receiver)
    assert message.body == b"c"
    assert len({str(each.tag) for each in (*held, third, fourth)}) == 4
    settle(client, held[1])
    settle(client, fourth)
    assert asked(client, *OUTCOMES.values()) == [
        commands.Settle(CONSUMER, ((1, 1),)),
        commands.Settle(NEXT, ((1, 1),)),
    ]


def test_credit_is_taken_back_when_more_becomes_overdue() -> None:
    client, _, held = holding(b"a", b"b")
    time_out(client, (0, 0))
    settle(client, held[0], Delivery.RELEASED)
    assert asked(client, asks.GrantCredit) == [asks.GrantCredit(NEXT, 0, 98)]
    client.requests.clear()
    time_out(client, (1, 1))
    assert held[1].remote_state == Delivery.RELEASED
    assert asked(client, asks.GrantCredit) == [asks.GrantCredit(NEXT, 0, 0)]
    assert not asked(client, asks.Consume), "it has one that has not timed out"
    settle(client, held[1], Delivery.RELEASED)
    assert asked(client, asks.GrantCredit) == [asks.GrantCredit(NEXT, 0, 98)]


def test_the_consumer_can_time_out_again() -> None:
    client, receiver, (first,) = holding(b"a")
    time_out(client, (0, 0))
    settle(client, first, Delivery.RELEASED)
    client.connection.deliver(NEXT, Run(0, 5, 0, 0), block_of(b"b"))
    client.turn()
    ((second, _),) = received(receiver)
    client.answers[asks.Consume] = asks.Consuming(NEXT + 1)
    client.requests.clear()
    assert not time_out(client, (0, 0), consumer=NEXT), "that is not the first time"
    assert second.remote_state == Delivery.RELEASED
    settle(client, second, Delivery.RELEASED)
    assert asked(client, asks.GrantCredit) == [asks.GrantCredit(NEXT + 1, 0, 98)]
    assert asked(client, asks.EndConsumer) == [asks.EndConsumer(NEXT, False)]


def test_what_was_not_sent_yet_goes_back() -> None:
    client = opened()
    receiver = consumer(client, credit=1)
    deliver(client, [b"a", b"b", b"c"])
    client.answers[asks.Consume] = asks.Consuming(NEXT)
    client.requests.clear()
    time_out(client, (0, 0))
    assert asked(client, *OUTCOMES.values()) == [commands.Return(CONSUMER, ((1, 2),), False)]
    ((first, _),) = received(receiver)
    settle(client, first, Delivery.RELEASED)
    assert not received(receiver)
    client.connection.deliver(CONSUMER, Run(3, 9, 0, 0), block_of(b"late"))
    receiver.flow(5)
    client.turn()
    assert not received(receiver), "it came for a consumer that has ended"


def test_what_comes_for_a_consumer_that_has_timed_out_goes_back() -> None:
    client, receiver, held = holding(b"a", b"b")
    time_out(client, (0, 0))
    client.connection.deliver(CONSUMER, Run(2, 9, 0, 0), block_of(b"late"))
    client.turn()
    assert not received(receiver)
    assert asked(client, *OUTCOMES.values()) == [commands.Return(CONSUMER, ((2, 2),), False)]
    settle(client, held[1])
    assert asked(client, *OUTCOMES.values()) == [commands.Settle(CONSUMER, ((1, 1),))]


def test_all_is_given_back_when_it_is_not_known_what_is_overdue() -> None:
    client, _, held = holding(b"a", b"b")
    time_out(client)
    assert [each.remote_state for each in held] == [Delivery.RELEASED] * 2
    assert asked(client, asks.EndConsumer) == [asks.EndConsumer(CONSUMER, False)]
    for each in held:
        settle(client, each, Delivery.RELEASED)
    assert asked(client, asks.GrantCredit) == [asks.GrantCredit(NEXT, 0, 98)]
    assert not asked(client, asks.EndConsumer) and not asked(client, *OUTCOMES.values())


def test_a_drain_meanwhile_is_answered() -> None:
    client, receiver, (held,) = holding(b"a")
    time_out(client, (0, 0))
    receiver.drain(0)
    client.turn()
    assert receiver.credit == 0
    assert not asked(client, asks.GrantCredit), "there is nothing to ask the queue for"
    settle(client, held, Delivery.RELEASED)
    receiver.drain_mode = False
    receiver.flow(4)
    client.turn()
    assert asked(client, asks.GrantCredit)[-1].credit == 4


def test_a_drain_from_before_is_answered_without_the_old_consumer() -> None:
    client, receiver, (held,) = holding(b"a")
    receiver.drain(0)
    client.turn()
    (before,) = asked(client, asks.GrantCredit)
    assert before.drain
    time_out(client, (0, 0))
    assert receiver.credit == 0
    receiver.drain_mode = False
    receiver.flow(5)
    client.turn()
    client.connection.answer(before.token, asks.CreditDrained(1))
    client.turn()
    assert receiver.credit == 5, "the answer was to the old consumer"
    settle(client, held, Delivery.RELEASED)
    assert asked(client, asks.GrantCredit)[-1] == asks.GrantCredit(NEXT, 0, 5)


def test_a_queue_that_refuses_the_new_consumer_ends_the_link() -> None:
    client, receiver, _ = holding(b"a", b"b")
    client.answers[asks.Consume] = errors.no_queue("q", "/")
    time_out(client, (0, 0))
    assert receiver.remote_condition.name == "amqp:not-found"
    assert asked(client, asks.EndConsumer) == [asks.EndConsumer(CONSUMER, False)]
    assert not client.connection.consumers


@pytest.mark.parametrize("answered", [True, False], ids=["joined again", "joining"])
@pytest.mark.parametrize("failed", [True, False], ids=["session", "link"])
def test_the_end_of_the_link_returns_the_rest(answered: bool, failed: bool) -> None:
    client, receiver, _ = holding(b"a", b"b")
    if not answered:
        del client.answers[asks.Consume]
    time_out(client, (0, 0))
    (again,) = asked(client, asks.Consume)
    (client.session if failed else receiver).close()
    client.turn()
    ended = asked(client, asks.EndConsumer)
    expected = [asks.EndConsumer(CONSUMER, failed)]
    if answered:
        expected.append(asks.EndConsumer(NEXT, failed))
    assert ended == expected
    if not answered:
        client.connection.answer(again.token, asks.Consuming(NEXT))
        client.turn()
        assert asked(client, asks.EndConsumer) == [asks.EndConsumer(NEXT, False)]
    assert not client.connection.consumers


def test_a_link_that_ended_is_not_asked_again() -> None:
    client, receiver, _ = holding(b"a")
    receiver.close()
    client.turn()
    client.requests.clear()
    time_out(client, (0, 0))
    assert not client.requests
