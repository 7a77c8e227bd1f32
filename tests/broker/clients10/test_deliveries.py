"""Deliveries as Proton's own pointers: messages and outcomes in every order, and ends meanwhile."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from proton import Delivery, Link, Message, symbol

from tests.broker.clients10.test_connection import Client
from tests.broker.clients10.test_links import (
    CONSUMER,
    OUTCOMES,
    asked,
    consumer,
    deliver,
    opened,
    publisher,
    received,
    sent,
)
from warren_broker.clients10 import link_requests as asks
from warren_machines.queue import commands
from warren_machines.queue.commands import Delivery as Run
from warren_wire import errors
from warren_wire.block.block import Block, encode
from warren_wire.kernel import Gathered, MessageTable, Route

ROUTE = Route(b"", b"q", False)


def message(body: bytes, **fields: Any) -> bytes:
    return bytes(Message(body=body, inferred=True, **fields).encode())


def kinds(chance: random.Random, number: int) -> bytes:
    """A message; most of them are like one another up to the body."""
    body = b"%d." % number + bytes(chance.choice((0, 3, 300, 5000)))
    kind = chance.randrange(8)
    if kind == 0:
        return message(body, durable=True, priority=chance.randrange(3))
    if kind == 1:
        return message(body, id=number)
    if kind == 2:
        return bytes(Message(body=body).encode())  # a value, not data
    if kind == 3:
        return message(body) + b"\x00\x53\x75\xa0\x01+"
    return message(body, durable=True)


def bodies(client: Client) -> list[bytes]:
    requests = asked(client, asks.PublishMessages)
    return [r.table.body(i) for r in requests for i in range(r.table.count)]


@pytest.mark.parametrize("seed", range(20))
def test_messages_are_published_in_their_order_as_they_came(seed: int) -> None:
    chance = random.Random(seed)
    client = opened()
    sender = publisher(client)
    data = [kinds(chance, number) for number in range(100)]
    deliveries = sent(client, sender, *data)
    client.turn(40)
    requests = asked(client, asks.PublishMessages)
    found = [(r.table, i) for r in requests for i in range(r.table.count)]
    assert len(found) == 100
    for (table, i), one in zip(found, data, strict=True):
        alone = opened()
        sent(alone, publisher(alone), one)
        (request,) = asked(alone, asks.PublishMessages)
        for of in ("body", "properties_of", "route", "ttl_ms", "priority", "flags"):
            assert getattr(table, of)(i) == getattr(request.table, of)(0), (i, of)
    for request in requests:
        every = range(request.table.count)
        said = {
            "accepted": [i for i in every if i % 3],
            "released": [i for i in every if not i % 3],
        }
        client.connection.answer(request.token, asks.PublishOutcomes(**said, last=True))
    client.turn(40)
    assert client.connection.in_flight_bytes == 0
    states = [Delivery.ACCEPTED if i % 3 else Delivery.RELEASED for _, i in found]
    assert [each.remote_state for each in deliveries] == states
    assert all(each.settled for each in deliveries)


def test_a_rejected_message_between_equal_ones_is_left_out_alone() -> None:
    client = opened()
    good = [message(b"%d" % i, address="/queues/q") for i in range(4)]
    bad = message(b"x", address="/management")
    deliveries = sent(client, publisher(client, None), good[0], good[1], bad, bad, *good[2:])
    assert bodies(client) == [b"0", b"1", b"2", b"3"]
    states = [each.remote_state for each in deliveries]
    assert [state == Delivery.REJECTED for state in states] == [0, 0, 1, 1, 0, 0]


def test_a_large_and_an_aborted_message_between_small_ones() -> None:
    client = opened()
    sender = publisher(client)
    sent(client, sender, message(b"first"), message(bytes(3 << 20)), message(b"second"))
    client.turn(20)
    delivery = sender.delivery("aborted")
    sender.stream(bytes(3 << 20))
    client.turn(20)
    delivery.abort()
    sent(client, sender, message(b"third"))
    client.turn(20)
    assert [body[:6] for body in bodies(client)] == [b"first", bytes(6), b"second", b"third"]
    assert client.connection.unfinished_bytes == 0


def test_messages_wait_in_their_order_while_there_is_enough_in_flight() -> None:
    client = opened(in_flight_bytes_max=500)
    sender = publisher(client)
    sent(client, sender, *[message(b"%02d" % i + bytes(98)) for i in range(20)])
    seen: list[bytes] = []
    for _ in range(100):
        requests = asked(client, asks.PublishMessages)
        assert sum(r.table.count for r in requests) <= 6
        for request in requests:
            every = range(request.table.count)
            seen += [request.table.body(i)[:2] for i in every]
            client.connection.answer(request.token, asks.PublishOutcomes(accepted=every, last=True))
        client.turn()
    assert seen == [b"%02d" % i for i in range(20)]


# ------------------------------------------------------------------ ends meanwhile


def end_link(client: Client, link: Any) -> None:
    link.close()


def detach_link(client: Client, link: Any) -> None:
    link.detach()


def end_session(client: Client, link: Any) -> None:
    client.session.close()


def end_connection(client: Client, link: Any) -> None:
    client.engine.connection.close()


def lose_connection(client: Client, link: Any) -> None:
    client.connection.end_of_input()


def free_connection(client: Client, link: Any) -> None:
    client.connection.end_of_input()
    client.connection.free()


ENDS = (end_link, detach_link, end_session, end_connection, lose_connection, free_connection)
End = Callable[[Client, Any], None]


@pytest.mark.parametrize("end", ENDS)
def test_an_outcome_after_the_end_of_a_publisher_is_dropped(end: End) -> None:
    client = opened()
    sender = publisher(client)
    sent(client, sender, *[message(b"%d" % i) for i in range(9)])
    (request,) = asked(client, asks.PublishMessages)
    end(client, sender)
    if end is not free_connection:
        client.turn()
    by = asks.RejectedBy("q", False)
    said = asks.PublishOutcomes([0, 1], [2, 3], [(4, by)], last=True)
    client.connection.answer(request.token, said)
    if end is not free_connection:
        client.turn()
        other = end in (end_link, detach_link)
        assert client.connection.in_flight_bytes == 0 or not other


@pytest.mark.parametrize("end", ENDS)
def test_nothing_of_a_consumer_is_touched_after_its_end(end: End) -> None:
    client = opened()
    receiver = consumer(client)
    deliver(client, [b"%d" % i for i in range(9)])
    deliveries = [each for each, _ in received(receiver)]
    for each in deliveries[:3]:
        each.update(Delivery.ACCEPTED)
        each.settle()
    client.turn()
    end(client, receiver)
    if end is not free_connection:
        client.turn()
    client.connection.timed_out(CONSUMER, ((0, 8),))
    client.connection.missed(CONSUMER, 20)
    if end is not free_connection:
        deliver(client, [b"late"], first_id=9)
    settled = asked(client, commands.Settle)
    assert [request.msg_ids for request in settled] == [((0, 2),)]


@pytest.mark.parametrize("seed", range(20))
def test_outcomes_in_any_order_reach_the_queue_once(seed: int) -> None:
    chance = random.Random(seed)
    client = opened()
    receiver = consumer(client)
    deliver(client, [b"%d" % i for i in range(60)])
    deliveries = [each for each, _ in received(receiver)]
    order = list(range(60))
    chance.shuffle(order)
    expected: dict[str, set[int]] = {}
    for at in order:
        each = deliveries[at]
        outcome = chance.choice(("accepted", "rejected", "released", "modified", "settled"))
        if outcome == "modified":
            each.local.annotations = {symbol("x-a"): 1}
        if outcome != "settled":
            each.update(getattr(Delivery, outcome.upper()))
        if outcome in ("modified", "settled") or chance.random() < 0.7:
            each.settle()
        # settled without an outcome: that of the source
        known = "released" if outcome == "settled" else outcome
        expected.setdefault(known, set()).add(at)
        if chance.random() < 0.2:
            client.turn(1)
    client.turn()
    found: dict[str, set[int]] = {}
    for outcome, kind in OUTCOMES.items():
        for first, last in [ids for request in asked(client, kind) for ids in request.msg_ids]:
            ids = found.setdefault(outcome, set())
            assert not ids & set(range(first, last + 1))
            ids |= set(range(first, last + 1))
    assert found == expected


def test_settled_deliveries_are_not_held() -> None:
    client = opened()
    receiver = consumer(client, snd_settle_mode=Link.SND_SETTLED)
    deliver(client, [b"%d" % i for i in range(9)])
    assert all(each.settled for each, _ in received(receiver))
    client.session.close()
    client.turn()
    assert not asked(client, *OUTCOMES.values())


def test_a_run_of_messages_is_what_each_appended_alone_is() -> None:
    for properties, priority, ttl in ((b"\x00\x00", 4, 0xFFFFFFFF), (b"\x08\x00\x07", 7, 60)):
        run, alone = MessageTable(), MessageTable()
        for table in (run, alone):
            table.append(Route(b"x", b"k", False), b"\x00\x00", b"before")
        several = [b"", b"a", bytes(300)]
        for bodies in (several, [], [b"last"]):
            gathered = Gathered()
            gathered.bodies = bodies
            gathered.append_to(run, ROUTE, properties, priority, ttl, 2)
            assert gathered.bodies == []
        for body in (*several, b"last"):
            alone.append(ROUTE, properties, body, priority, ttl, 2)
        for name in ("count", "rows", "properties", "bodies"):
            assert getattr(run, name) == getattr(alone, name), name
        assert run.routes.entries == alone.routes.entries


# ------------------------------------------------------------------ what is left behind


def test_a_second_outcome_of_a_message_is_not_that_of_a_later_one() -> None:
    client = opened()
    sender = publisher(client, None)
    data = [message(b"%d" % i, address="/queues/q") for i in range(4)]
    earlier = sent(client, sender, data[0], data[1])
    (request,) = asked(client, asks.PublishMessages)
    client.connection.answer(request.token, asks.PublishOutcomes(accepted=[0, 1]))
    client.turn()  # the engine frees both deliveries, and takes them again for the next ones
    later = sent(client, sender, data[2], data[3])
    (unanswered,) = asked(client, asks.PublishMessages)
    by, refusal = asks.RejectedBy("q", False), errors.no_queue("q", "/")
    for said in (
        asks.PublishOutcomes(accepted=[0], released=[1]),
        asks.PublishOutcomes(rejected=[(0, by)], refused=[(1, refusal)]),
        refusal,
    ):
        client.connection.answer(request.token, said)
        client.turn()
    assert [each.remote_state for each in earlier] == [Delivery.ACCEPTED] * 2
    assert not any(each.remote_state or each.settled for each in later)
    client.connection.answer(unanswered.token, asks.PublishOutcomes(released=[0, 1], last=True))
    client.turn()
    assert [each.remote_state for each in later] == [Delivery.RELEASED] * 2
    assert client.connection.in_flight_bytes == 0


def test_an_aborted_message_behind_waiting_ones_is_dropped_in_its_turn() -> None:
    client = opened(in_flight_bytes_max=500)
    sender, other = publisher(client), publisher(client, "/queues/other")
    first, second = (message(b"%d" % i + bytes(900)) for i in range(2))

    def push() -> None:  # the client reads nothing, so the broker writes nothing
        for piece in client.engine.output(1 << 20):
            client.connection.receive(piece)
        client.requests += client.connection.take_requests()

    def write(link: Any, tag: str, data: bytes) -> Any:
        delivery = link.delivery(tag)
        link.stream(data)
        return delivery

    def write_whole(link: Any, tag: str, data: bytes) -> None:
        write(link, tag, data)
        link.advance()
        push()

    def answer() -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        for request in asked(client, asks.PublishMessages):
            table, every = request.table, range(request.table.count)
            found += [(table.route(i).routing_key, table.body(i)[:1]) for i in every]
            said = asks.PublishOutcomes(accepted=every, last=True)
            client.connection.answer(request.token, said)
        client.requests += client.connection.take_requests()
        return found

    write_whole(sender, "0", first)
    write_whole(sender, "1", second)
    aborted = write(sender, "2", b"part")
    push()
    aborted.abort()
    push()
    assert answer() == [
        (b"q", b"0")
    ]  # the second is read, and the link has come to the aborted one
    client.connection.take_output()
    for tag in "34":
        write_whole(other, tag, message(b"2"))  # for which the engine takes what it has freed
    write_whole(sender, "5", message(b"last"))
    seen: list[tuple[bytes, bytes]] = []
    for _ in range(5):
        seen += answer()
        client.turn()
    assert sorted(seen) == [(b"other", b"2"), (b"other", b"2"), (b"q", b"1"), (b"q", b"l")]
    assert client.connection.in_flight_bytes == client.connection.unfinished_bytes == 0


@pytest.mark.parametrize("large", ["body", "delivery annotations", "application properties"])
def test_a_link_keeps_nothing_of_a_large_message(large: str) -> None:
    client = opened(frame_max=16 << 20)
    sender = publisher(client)
    receiver = consumer(client)
    text = "x" * (4 << 20)
    data = {
        "body": lambda: message(text.encode()),
        "delivery annotations": lambda: message(b"", instructions={symbol("x-a"): text}),
        "application properties": lambda: message(b"", properties={"k": text}),
    }[large]()
    tracemalloc.start()
    try:
        sent(client, sender, data)
        (request,) = asked(client, asks.PublishMessages)
        stored, body = request.table.properties_of(0), request.table.body(0)
        client.connection.answer(request.token, asks.PublishOutcomes(accepted=[0], last=True))
        block = Block.decode(encode([body], [stored], (b"", b"q"), 4, None))
        client.connection.deliver(CONSUMER, Run(0, 1, 0, 0), block)
        del request, stored, body, block
        client.turn()
        assert len(received(receiver)) == 1
        client.turn()
        assert tracemalloc.get_traced_memory()[0] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("overdue", [False, True])
def test_an_outcome_that_is_said_twice_in_a_pass_is_taken_once(overdue: bool) -> None:
    client = opened()
    receiver = consumer(client)
    deliver(client, [b"a", b"b"])
    deliveries = [each for each, _ in received(receiver)]
    if overdue:
        client.connection.timed_out(CONSUMER, ((0, 1),))
        client.turn()
    pieces: list[bytes] = []
    for settled in (False, True):
        for each in deliveries:
            if settled:
                each.settle()
            else:
                each.update(Delivery.ACCEPTED)
        pieces += map(bytes, client.engine.output(1 << 20))
    client.connection.receive(b"".join(pieces))
    client.turn()
    told = [request.msg_ids for request in asked(client, commands.Settle)]
    assert told == ([] if overdue else [((0, 1),)])
