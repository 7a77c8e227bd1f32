"""Links of ordinary clients as pure objects: consumers, outcomes, credit, publishers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from proton import Delivery, Link, Message, symbol

from tests.broker.clients10.test_connection import Client, new, send
from warren_broker.clients10 import link_requests as asks
from warren_machines.queue import commands
from warren_machines.queue.annotations import ANNOTATIONS_BYTES_MAX
from warren_machines.queue.commands import Delivery as Run
from warren_wire import errors
from warren_wire.block.block import FORM_AMQP10, Block, encode

CONSUMER = 7
SMALL = Message(body=b"small").encode()
LATE = Block.decode(encode([b"late"], [b""], (b"", b"q"), 4, None))


def opened(**limits: int) -> Client:
    """A client of which all links are accepted."""
    client = Client(new(**limits))
    client.answers[asks.Consume] = asks.Consuming(CONSUMER)
    client.answers[asks.OpenTarget] = asks.TargetOpened()
    client.turn()
    return client


OUTCOMES = {
    "accepted": commands.Settle,
    "rejected": commands.Discard,
    "released": commands.Return,
    "modified": commands.Modify,
}
"""What the queue is told by each outcome."""


def asked(client: Client, *kinds: type) -> list[Any]:
    """The requests of these kinds since the last call."""
    found = [request for request in client.requests if type(request) in kinds]
    client.requests = [request for request in client.requests if type(request) not in kinds]
    return found


def consumer(client: Client, credit: int = 100, **fields: Any) -> Any:
    """A receiver on /queues/q."""
    receiver = client.session.receiver(f"r{time.monotonic_ns()}")
    receiver.source.address = "/queues/q"
    for name, value in fields.items():
        setattr(receiver, name, value)
    receiver.open()
    client.turn()
    if credit:
        receiver.flow(credit)
        client.turn()
    return receiver


def deliver(client: Client, bodies: Sequence[bytes], first_id: int = 0, **counts: Any) -> None:
    """The queue delivers a block's messages."""
    block = Block.decode(encode(list(bodies), [b""] * len(bodies), (b"", b"q"), 4, None))
    run = Run(first_id, 1, 0, len(bodies) - 1, **counts)
    client.connection.deliver(CONSUMER, run, block)
    client.turn()


def received(receiver: Any) -> list[tuple[Any, Message]]:
    """(delivery, message) of what has arrived whole."""
    found = []
    while (delivery := receiver.current) is not None and not delivery.partial:
        message = Message()
        message.decode(receiver.recv(delivery.pending))
        receiver.advance()
        found.append((delivery, message))
    return found


# ------------------------------------------------------------------ consumers


def test_an_attach_asks_for_a_consumer_with_what_it_says() -> None:
    client = opened()
    said = {symbol("rabbitmq:priority"): -3, symbol("rabbitmq:consumer-timeout"): 5000}
    receiver = consumer(client, properties=said, snd_settle_mode=Link.SND_SETTLED)
    (request,) = asked(client, asks.Consume)
    assert (request.queue, request.settled) == ("q", True)
    assert (request.priority, request.timeout_ms) == (-3, 5000)
    assert receiver.remote_source.address == "/queues/q"
    assert receiver.remote_snd_settle_mode == Link.SND_SETTLED


@pytest.mark.parametrize("value", ["high", 1 << 40, True])
def test_a_priority_that_is_no_integer_is_refused(value: Any) -> None:
    client = opened()
    receiver = consumer(client, properties={symbol("rabbitmq:priority"): value})
    assert receiver.remote_condition.name == "amqp:invalid-field"
    assert "rabbitmq:priority" in receiver.remote_condition.description
    assert not asked(client, asks.Consume)


def test_a_missing_queue_is_an_attach_without_source_and_a_detach() -> None:
    client = opened()
    client.answers[asks.Consume] = errors.no_queue("q", "/")
    receiver = client.session.receiver("r")
    receiver.source.address, receiver.target.address = "/queues/q", "here"
    receiver.open()
    client.turn()
    assert receiver.remote_source.address is None
    assert receiver.remote_target.address == "here", "the client's own end is repeated"
    assert receiver.state & receiver.REMOTE_CLOSED
    assert receiver.remote_condition.name == "amqp:not-found"
    assert receiver.remote_condition.description == "no queue 'q' in vhost '/'"


def test_credit_goes_to_the_queue_as_it_changes() -> None:
    client = opened()
    receiver = consumer(client, credit=3)
    (first,) = asked(client, asks.GrantCredit)
    assert (first.delivered, first.credit) == (0, 3)
    deliver(client, [b"a", b"b"])
    assert len(received(receiver)) == 2
    assert not asked(client, asks.GrantCredit), "what was used is known to the queue"
    receiver.flow(10)
    client.turn()
    (more,) = asked(client, asks.GrantCredit)
    assert (more.delivered, more.credit, more.drain) == (2, 11, False)


def test_no_more_is_sent_than_the_credit_and_the_rest_when_there_is_more() -> None:
    client = opened()
    receiver = consumer(client, credit=2)
    deliver(client, [b"a", b"b", b"c"])
    assert [bytes(m.body) for _, m in received(receiver)] == [b"a", b"b"]
    receiver.flow(1)
    client.turn()
    assert [bytes(m.body) for _, m in received(receiver)] == [b"c"]


def test_a_drain_gives_the_credit_back_after_what_the_queue_had() -> None:
    client = opened()
    receiver = consumer(client, credit=0)
    receiver.drain(10)
    client.turn()
    (request,) = asked(client, asks.GrantCredit)
    assert request.drain and request.credit == 10
    client.connection.answer(request.token, asks.CreditDrained(2))
    client.turn()
    assert receiver.draining(), "the queue's answer has overtaken its deliveries"
    deliver(client, [b"a", b"b"])
    assert len(received(receiver)) == 2
    assert not receiver.draining() and receiver.credit == 0
    receiver.drain_mode = False
    receiver.flow(4)
    client.turn()
    (again,) = asked(client, asks.GrantCredit)
    assert (again.delivered, again.credit, again.drain) == (2, 4, False)


@pytest.mark.parametrize("had", [0, 2])
def test_a_drain_that_the_client_has_given_up_takes_no_credit(had: int) -> None:
    """The queue ends the credit when it answers, long after that where it waits for a filter."""
    client = opened()
    receiver = consumer(client, credit=0)
    receiver.drain(10)
    client.turn()
    (request,) = asked(client, asks.GrantCredit)
    receiver.drain_mode = False
    receiver.flow(5)
    client.turn()
    (more,) = asked(client, asks.GrantCredit)
    assert (more.delivered, more.credit, more.drain) == (0, 15, False)
    client.connection.answer(request.token, asks.CreditDrained(had))
    if had:
        deliver(client, [b"x"] * had)
    again = asked_now(client, asks.GrantCredit)[-1]
    assert (again.delivered, again.credit, again.drain) == (had, 15 - had, False)
    assert len(received(receiver)) == had and receiver.credit == 15 - had


def test_credit_of_deliveries_that_never_came_is_given_again() -> None:
    client = opened()
    consumer(client, credit=5)
    asked(client, asks.GrantCredit)
    client.connection.missed(CONSUMER, 3)
    (request,) = asked_now(client, asks.GrantCredit)
    assert (request.delivered, request.credit) == (3, 5)


def asked_now(client: Client, kind: type) -> list[Any]:
    client.turn()
    return asked(client, kind)


def test_an_unreadable_block_is_set_aside() -> None:
    """An assertion ended the node of the consumer, and then the next one's."""
    client = opened()
    receiver = consumer(client, credit=3)
    asked(client, asks.GrantCredit)
    bad = Block.decode(encode([b""] * 2, [b""] * 2, (b"", b""), form=FORM_AMQP10))
    client.connection.deliver(CONSUMER, Run(0, 7, 0, 1), bad)
    client.turn()
    noted = asked(client, asks.SetAside)
    assert [(each.index, each.msg_id) for each in noted] == [(7, 0), (7, 1)]
    (discard,) = asked(client, commands.Discard)
    assert (discard.msg_ids, discard.failed) == (((0, 1),), True)
    (granted,) = asked(client, asks.GrantCredit)
    assert (granted.delivered, granted.credit) == (2, 3)
    deliver(client, [b"good"], first_id=2)
    assert [bytes(m.body) for _, m in received(receiver)] == [b"good"]


def test_a_redelivered_message_says_so() -> None:
    client = opened()
    receiver = consumer(client)
    notes = ((0, (("x-opt-reason", msgspec.msgpack.encode("late")),)),)
    deliver(client, [b"a"], delivery_count=2, acquired_count=3, annotations=notes)
    ((_, message),) = received(receiver)
    assert (message.delivery_count, message.first_acquirer) == (2, False)
    assert message.annotations[symbol("x-opt-reason")] == "late"


def test_a_message_of_many_transfers_arrives_whole() -> None:
    client = opened()
    receiver = consumer(client)
    deliver(client, [bytes(5 << 20), b"small"])
    client.turn(20)
    assert [len(m.body) for _, m in received(receiver)] == [5 << 20, 5]


def test_a_slow_client_is_not_written_ahead_of_for_ever() -> None:
    client = opened(send_ahead_bytes_max=1 << 16)
    consumer(client, credit=1000)
    block = Block.decode(encode([bytes(1 << 14)] * 100, [b""] * 100, (b"", b"q"), 4, None))
    client.connection.deliver(CONSUMER, Run(0, 1, 0, 99), block)
    assert sum(map(len, client.connection.take_output(1 << 10))) < 1 << 18


def test_a_message_above_the_clients_limit_ends_the_link() -> None:
    client = opened()
    receiver = consumer(client, max_message_size=1000)
    deliver(client, [bytes(2000)])
    assert receiver.remote_condition.name == "amqp:link:message-size-exceeded"
    assert asked(client, asks.EndConsumer) == [asks.EndConsumer(CONSUMER, False)]


def test_settled_deliveries_need_no_outcome_and_the_queue_hears_that_they_left() -> None:
    client = opened()
    receiver = consumer(client, credit=5000, snd_settle_mode=Link.SND_SETTLED)
    asked(client, asks.GrantCredit)
    deliver(client, [b"x"] * 1500)
    found = received(receiver)
    assert len(found) == 1500 and all(delivery.settled for delivery, _ in found)
    (report,) = asked(client, asks.GrantCredit)
    assert (report.delivered, report.credit) == (1500, 3500)


# ------------------------------------------------------------------ outcomes


@pytest.mark.parametrize(
    "state, outcome",
    [
        (Delivery.ACCEPTED, "accepted"),
        (Delivery.REJECTED, "rejected"),
        (Delivery.RELEASED, "released"),
    ],
)
@pytest.mark.parametrize("settled", [True, False])
def test_outcomes_of_one_pass_go_to_the_queue_together(
    state: Any, outcome: str, settled: bool
) -> None:
    client = opened()
    receiver = consumer(client)
    deliver(client, [b"a", b"b", b"c", b"d"])
    found = [delivery for delivery, _ in received(receiver)]
    for delivery in (found[0], found[1], found[3]):
        delivery.update(state)
        if settled:
            delivery.settle()
    client.turn()
    (request,) = asked(client, *OUTCOMES.values())
    assert (type(request), request.consumer) == (OUTCOMES[outcome], CONSUMER)
    assert request.msg_ids == ((0, 1), (3, 3))
    if not settled:
        assert found[0].settled and found[0].remote_state == state


def test_what_is_settled_without_an_outcome_is_released() -> None:
    client = opened()
    receiver = consumer(client)
    deliver(client, [b"a"])
    received(receiver)[0][0].settle()
    client.turn()
    assert asked(client, commands.Return) == [commands.Return(CONSUMER, ((0, 0),), False)]


def modify(client: Client, receiver: Any, annotations: Any, **flags: bool) -> None:
    deliver(client, [b"a"])
    ((delivery, _),) = received(receiver)
    delivery.local.annotations = annotations
    for name, value in flags.items():
        setattr(delivery.local, name, value)
    delivery.update(Delivery.MODIFIED)
    delivery.settle()
    client.turn()


def test_a_modified_outcome_carries_flags_annotations_and_time() -> None:
    client = opened()
    receiver = consumer(client)
    said = {symbol("x-opt-delivery-time"): 1234567890123, symbol("x-opt-why"): "busy"}
    modify(client, receiver, said, failed=True, undeliverable=True)
    (request,) = asked(client, commands.Modify)
    assert (request.msg_ids, request.failed, request.discard) == (((0, 0),), True, True)
    assert request.ready_ms == 1234567890123
    decoded = [(key, msgspec.msgpack.decode(value)) for key, value in request.annotations]
    assert decoded == [("x-opt-delivery-time", 1234567890123), ("x-opt-why", "busy")]


@pytest.mark.parametrize(
    "annotations, text",
    [
        ({symbol("opt-delivery-time"): 1}, "begin with 'x-'"),
        ({symbol("x-opt-long"): "x" * ANNOTATIONS_BYTES_MAX}, "is the limit"),
    ],
)
def test_annotations_that_cannot_be_kept_end_the_link(annotations: Any, text: str) -> None:
    client = opened()
    receiver = consumer(client)
    modify(client, receiver, annotations)
    assert receiver.remote_condition.name == "amqp:invalid-field"
    assert text in receiver.remote_condition.description
    assert not asked(client, commands.Modify)
    assert asked(client, asks.EndConsumer) == [asks.EndConsumer(CONSUMER, False)]


# ------------------------------------------------------------------ the end of links


def end_link(client: Client, receiver: Any) -> None:
    receiver.close()


def end_session(client: Client, receiver: Any) -> None:
    client.session.close()


def end_connection(client: Client, receiver: Any) -> None:
    client.engine.connection.close()


@pytest.mark.parametrize(
    "end, failed", [(end_link, False), (end_session, True), (end_connection, True)]
)
def test_what_is_held_returns_when_the_link_ends(end: Any, failed: bool) -> None:
    client = opened()
    receiver = consumer(client)
    deliver(client, [b"a", b"b"])
    delivery = received(receiver)[0][0]
    delivery.update(Delivery.ACCEPTED)
    delivery.settle()
    end(client, receiver)
    client.turn()
    assert [type(r) for r in client.requests][-2:] == [commands.Settle, asks.EndConsumer]
    assert asked(client, asks.EndConsumer) == [asks.EndConsumer(CONSUMER, failed)]
    client.connection.deliver(CONSUMER, Run(9, 1, 0, 0), LATE)
    assert not client.connection.consumers


def test_a_consumer_whose_link_has_ended_meanwhile_ends() -> None:
    client = opened()
    del client.answers[asks.Consume]
    receiver = consumer(client, credit=0)
    receiver.close()
    client.turn()
    (request,) = asked(client, asks.Consume)
    client.connection.answer(request.token, asks.Consuming(CONSUMER))
    assert asked_now(client, asks.EndConsumer) == [asks.EndConsumer(CONSUMER, False)]


def test_a_cancelled_consumer_is_told_why() -> None:
    client = opened()
    receiver = consumer(client)
    client.connection.cancelled(CONSUMER, errors.ResourceDeleted("queue 'q' was deleted"))
    client.turn()
    assert receiver.remote_condition.name == "amqp:resource-deleted"
    assert asked(client, asks.EndConsumer) == [asks.EndConsumer(CONSUMER, False)]


# ------------------------------------------------------------------ publishers


def test_a_publisher_s_link_ends_when_its_queue_is_deleted() -> None:
    client = opened()
    client.answers[asks.OpenTarget] = asks.TargetOpened(3)
    sender, other = publisher(client), publisher(client, "/exchanges/x/k")
    client.answers[asks.OpenTarget] = asks.TargetOpened(4)
    third = publisher(client)
    client.connection.target_deleted(4, errors.ResourceDeleted("queue 'q' was deleted"))
    client.turn()
    assert third.remote_condition.name == "amqp:resource-deleted"
    assert asked(client, asks.CloseTarget) == [asks.CloseTarget(4)]
    assert not (sender.state | other.state) & sender.REMOTE_CLOSED
    sender.close()
    client.turn()
    assert asked(client, asks.CloseTarget) == [asks.CloseTarget(3)]
    client.connection.target_deleted(3, errors.ResourceDeleted("queue 'q' was deleted"))


def test_a_target_that_is_opened_too_late_is_closed() -> None:
    client = opened()
    del client.answers[asks.OpenTarget]
    sender = publisher(client)
    sender.close()
    client.turn()
    (request,) = asked(client, asks.OpenTarget)
    client.connection.answer(request.token, asks.TargetOpened(5))
    assert asked_now(client, asks.CloseTarget) == [asks.CloseTarget(5)]


def publisher(client: Client, address: str | None = "/queues/q", **fields: Any) -> Any:
    sender = client.session.sender(f"s{time.monotonic_ns()}")
    sender.target.address = address
    for name, value in fields.items():
        setattr(sender, name, value)
    sender.open()
    client.turn()
    return sender


def test_a_link_name_that_is_not_utf8_ends_the_connection_at_once() -> None:
    client = Client(new())
    client.engine.connection.properties = {symbol("product"): "x"}
    client.engine.connection.open()
    client.turn()
    sender = client.session.sender("naam")
    sender.target.address = "/queues/q"
    sender.open()
    attach = b"".join(bytes(piece) for piece in client.engine.output(1 << 20))
    client.connection.receive(attach.replace(b"naam", b"na\xff\xff"))
    assert "utf-8" in client.connection.failure
    assert not client.connection.take_requests()


def sent(client: Client, sender: Any, *messages: bytes) -> list[Any]:
    """Deliveries of messages that were sent in one pass."""
    deliveries = []
    for number, data in enumerate(messages):
        deliveries.append(sender.delivery(f"{time.monotonic_ns()}{number}"))
        sender.stream(data)
        sender.advance()
    client.turn()
    return deliveries


def test_messages_of_one_pass_are_published_together_and_get_their_outcomes() -> None:
    client = opened()
    sender = publisher(client)
    deliveries = sent(client, sender, *[SMALL] * 4)
    (request,) = asked(client, asks.PublishMessages)
    assert request.table.count == 4 and not request.settled
    assert request.table.route(0)[:2] == (b"", b"q")
    token = request.token
    by = asks.RejectedBy("q", False)
    client.connection.answer(token, asks.PublishOutcomes(accepted=[0, 2]))
    client.connection.answer(token, asks.PublishOutcomes(released=[1]))
    client.connection.answer(token, asks.PublishOutcomes(rejected=[(3, by)], last=True))
    client.turn()
    assert [delivery.remote_state for delivery in deliveries] == [
        Delivery.ACCEPTED,
        Delivery.RELEASED,
        Delivery.ACCEPTED,
        Delivery.REJECTED,
    ]
    condition = deliveries[3].remote.condition
    assert condition.name == "amqp:resource-limit-exceeded"
    assert condition.description == "queue 'q' exceeded maximum length"
    assert condition.info == {symbol("queue"): "q", symbol("reason"): symbol("maxlen")}
    assert client.connection.in_flight_bytes == 0


@pytest.mark.parametrize(
    "address, route",
    [
        ("/queues/q", (b"", b"q")),
        ("/exchanges/x/a.b", (b"x", b"a.b")),
        ("/exchanges/x", (b"x", b"")),
    ],
)
def test_where_a_target_publishes(address: str, route: tuple[bytes, bytes]) -> None:
    client = opened()
    sent(client, publisher(client, address), SMALL)
    sent(client, publisher(client, None), Message(address=address, body=b"x").encode())
    first, second = asked(client, asks.PublishMessages)
    assert first.table.route(0)[:2] == second.table.route(0)[:2] == route
    assert second.anonymous and not first.anonymous


@pytest.mark.parametrize("to", [None, "queues", "/queues/q/browse?max=1", "/management"])
def test_an_anonymous_message_with_a_wrong_address_is_rejected(to: str | None) -> None:
    client = opened()
    sender = publisher(client, None)
    wrong, right = sent(
        client,
        sender,
        Message(address=to, body=b"x").encode(),
        Message(address="/queues/q", body=b"x").encode(),
    )
    assert wrong.remote_state == Delivery.REJECTED
    assert wrong.remote.condition.name == "amqp:precondition-failed"
    assert asked(client, asks.PublishMessages)[0].table.count == 1
    assert not right.settled and not sender.state & sender.REMOTE_CLOSED


def test_a_refused_message_ends_the_link_and_those_before_it_are_published() -> None:
    client = opened()
    sender = publisher(client)
    deliveries = sent(client, sender, SMALL, SMALL, SMALL)
    (request,) = asked(client, asks.PublishMessages)
    refusal = errors.AccessRefused("write access refused")
    client.connection.answer(request.token, asks.PublishOutcomes(refused=[(1, refusal)]))
    client.connection.answer(request.token, asks.PublishOutcomes(accepted=[0], last=True))
    client.turn()
    assert sender.remote_condition.name == "amqp:unauthorized-access"
    assert client.connection.in_flight_bytes == 0
    assert not deliveries[2].settled


def test_messages_for_an_exchange_that_was_deleted_are_released_before_their_link_ends() -> None:
    client = opened()
    sender = publisher(client, "/exchanges/x")
    first, second, third = sent(client, sender, SMALL, SMALL, SMALL)
    (request,) = asked(client, asks.PublishMessages)
    client.connection.answer(request.token, asks.PublishOutcomes(accepted=[0]))
    refusal = errors.NotFound("no exchange 'x' in vhost '/'")
    client.connection.answer(request.token, asks.PublishOutcomes(refused=[(1, refusal)], last=True))
    client.turn()
    assert first.remote_state == Delivery.ACCEPTED
    assert second.remote_state == third.remote_state == Delivery.RELEASED
    assert sender.remote_condition.name == "amqp:not-found"
    assert client.connection.in_flight_bytes == 0


@pytest.mark.parametrize("data", [b"", b"\x00", b"no sections", SMALL[:-1], b"\x00\x53\x99\xc0"])
def test_a_message_that_cannot_be_read_ends_its_link_only(data: bytes) -> None:
    client = opened()
    sender = publisher(client)
    other = publisher(client)
    sent(client, sender, data)
    assert sender.remote_condition.name == "amqp:decode-error"
    sent(client, other, SMALL)
    assert asked(client, asks.PublishMessages)[-1].table.count == 1


def test_a_message_above_the_limit_ends_the_link() -> None:
    client = opened(message_bytes_max=10_000)
    sender = publisher(client)
    assert sender.remote_max_message_size == 10_000
    sent(client, sender, Message(body=bytes(20_000)).encode())
    assert sender.remote_condition.name == "amqp:link:message-size-exceeded"
    assert not asked(client, asks.PublishMessages)


def test_an_aborted_message_is_forgotten() -> None:
    client = opened()
    sender = publisher(client)
    delivery = sender.delivery("one")
    sender.stream(bytes(3 << 20))
    client.turn()
    assert client.connection.unfinished_bytes > 0
    delivery.abort()
    client.turn()
    assert client.connection.unfinished_bytes == 0
    sent(client, sender, SMALL)
    assert [r.table.count for r in asked(client, asks.PublishMessages)] == [1]


def test_a_message_of_many_transfers_is_published_whole() -> None:
    client = opened()
    sender = publisher(client)
    send(sender, Message(body=bytes(range(256)) * 20_000, inferred=True).encode())
    client.turn(20)
    (request,) = asked(client, asks.PublishMessages)
    assert request.table.body(0) == bytes(range(256)) * 20_000


def test_while_resources_are_short_publishers_get_no_credit() -> None:
    client = opened()
    client.connection.short = True
    sender = publisher(client)
    assert sender.credit == 0
    client.connection.short = False
    client.turn()
    assert sender.credit > 100


def test_credit_comes_back_as_messages_are_answered() -> None:
    client = opened()
    sender = publisher(client)
    credit = sender.credit
    sent(client, sender, *[SMALL] * credit)
    client.turn(100)  # more than a window of frames
    assert sender.credit == 0, "so many wait for their queues"
    for request in asked(client, asks.PublishMessages):
        everything = asks.PublishOutcomes(accepted=range(request.table.count), last=True)
        client.connection.answer(request.token, everything)
    client.turn()
    assert sender.credit > credit // 2


def test_settled_messages_get_no_outcome() -> None:
    client = opened()
    sender = publisher(client, snd_settle_mode=Link.SND_SETTLED)
    delivery = sender.delivery("one")
    sender.stream(SMALL)
    sender.advance()
    delivery.settle()
    client.turn()
    (request,) = asked(client, asks.PublishMessages)
    assert request.settled
    client.connection.answer(request.token, asks.PublishOutcomes(released=[0], last=True))
    assert client.connection.in_flight_bytes == 0
