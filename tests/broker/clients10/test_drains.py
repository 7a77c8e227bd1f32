"""Drains: each one that a client asks for is answered with a flow, whatever credit there is."""

from __future__ import annotations

from typing import Any

from proton import Data, Link

from tests.broker.clients10.test_connection import (
    Client,
    attach_management,
    new,
    opened_receiver,
    output,
)
from tests.broker.clients10.test_dynamic_nodes import attach, client_with
from tests.broker.clients10.test_endings import BEGIN, frame, opened_by_hand, receiver
from tests.broker.clients10.test_links import CONSUMER, asked, consumer, deliver, opened, received
from warren_broker.clients10 import link_requests as asks
from warren_broker.clients10.client10 import has_assertions
from warren_broker.clients10.connection_requests import Fetched, Piece
from warren_broker.clients10.dynamic_nodes import VOLATILE_QUEUE
from warren_machines.queue.commands import Delivery as Run
from warren_wire.block.block import Block, encode

FLOW = b"\x00\x53\x13"
TRANSFER = b"\x00\x53\x14"
HANDLE, COUNT_CREDIT, DRAIN = 4, slice(5, 7), 8


def flows(data: bytes) -> list[list[Any]]:
    """The fields of the flows of links in bytes of whole frames."""
    found, at = [], 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if data[at + 8 : at + 11] == FLOW:
            fields = Data()
            fields.decode(data[at + 8 : at + size])
            fields.rewind()
            fields.next()
            found.append(
                [None if each is None else int(each) for each in fields.get_object().value]
            )
        at += max(size, 8)
    return [each for each in found if len(each) > DRAIN]


def answer_of(client: Client) -> list[list[Any]]:
    """What the broker answers to what the client has written: flows of links."""
    for piece in client.engine.output(1 << 20):
        client.connection.receive(piece)
    for request in client.connection.take_requests():
        client.requests.append(request)
    sent = output(client.connection)
    for _ in client.engine.receive(sent):
        pass
    list(client.engine.events())
    return flows(sent)


def test_a_drain_without_credit_is_answered_with_the_delivery_count() -> None:
    client = opened()
    receiver = consumer(client, credit=3)
    deliver(client, [b"a", b"b", b"c"])
    assert receiver.credit == 3 and len(received(receiver)) == 3
    asked(client, asks.GrantCredit)
    for _ in range(2):  # each one is answered
        receiver.drain(0)
        (answer,) = answer_of(client)
        assert (answer[HANDLE], *answer[COUNT_CREDIT], answer[DRAIN]) == (0, 3, 0, 1)
        assert answer_of(client) == []
    assert not asked(client, asks.GrantCredit), "the queue need not be asked"
    receiver.drain_mode = False
    receiver.flow(2)
    client.turn()
    (more,) = asked(client, asks.GrantCredit)
    assert (more.delivered, more.credit, more.drain) == (3, 2, False)
    deliver(client, [b"d", b"e"], first_id=3)
    assert len(received(receiver)) == 2


def test_a_drain_that_messages_have_used_up_is_answered_once() -> None:
    client = opened()
    receiver = consumer(client, credit=0)
    receiver.drain(2)
    client.turn()
    (request,) = asked(client, asks.GrantCredit)
    block = Block.decode(encode([b"a", b"b"], [b"", b""], (b"", b"q"), 4, None))
    client.connection.deliver(CONSUMER, Run(0, 1, 0, 1), block)
    client.connection.answer(request.token, asks.CreditDrained(2))
    (answer,) = answer_of(client)
    assert answer[COUNT_CREDIT] == [2, 0] and answer[DRAIN] == 1
    assert len(received(receiver)) == 2
    assert answer_of(client) == []


def test_a_drain_before_the_attach_is_answered() -> None:
    client = opened()
    del client.answers[asks.Consume]
    receiver = consumer(client, credit=0)
    receiver.drain(0)
    client.turn()
    (request,) = asked(client, asks.Consume)
    client.connection.answer(request.token, asks.Consuming(CONSUMER))
    (answer,) = answer_of(client)
    assert answer[COUNT_CREDIT] == [0, 0] and answer[DRAIN] == 1


def test_a_drain_of_replies_without_credit_is_answered() -> None:
    client = client_with()
    receiver = attach(client, VOLATILE_QUEUE)
    receiver.drain(0)
    (answer,) = answer_of(client)
    assert answer[COUNT_CREDIT] == [0, 0] and answer[DRAIN] == 1


def test_a_drain_of_answers_gives_back_what_is_not_used() -> None:
    client = opened()
    _, receiver = attach_management(client)
    receiver.drain(0)
    (answer,) = answer_of(client)
    assert answer[COUNT_CREDIT] == [10, 0] and answer[DRAIN] == 1
    receiver.drain(0)
    (answer,) = answer_of(client)
    assert answer[COUNT_CREDIT] == [10, 0] and answer[DRAIN] == 1


def test_a_drain_of_pieces_is_answered_once_they_have_used_up_the_credit() -> None:
    """A browse, a view or a claim; before: no answer, and none without credit."""
    client = Client(new())
    receiver = opened_receiver(client, "pieces", "/queues/q/browse?max=100")
    asked_for = client.requests.pop()
    receiver.drain(2)
    assert answer_of(client) == [], "the pieces are on their way"
    pieces = (Piece(((1, 0, 0, 0, 0),), b"block"),) * 3
    client.connection.answer(asked_for.token, Fetched(pieces, 3, cursor=None))
    (answer,) = answer_of(client)
    assert answer[COUNT_CREDIT] == [2, 0] and answer[DRAIN] == 1
    receiver.drain(0)
    (answer,) = answer_of(client)
    assert answer[COUNT_CREDIT] == [2, 0] and answer[DRAIN] == 1
    assert answer_of(client) == []
    receiver.drain(5)
    assert answer_of(client) == []
    assert receiver.state & Link.REMOTE_CLOSED, "the end of the link gives the credit back"
    assert len(received(receiver)) == 3


def test_an_engine_with_assertions_is_not_lent_credit() -> None:
    """It would end the process: the drain has no answer, as from Proton itself."""
    client = opened()
    client.connection.lends_credit = False
    receiver = consumer(client, credit=0)
    receiver.drain(0)
    assert answer_of(client) == []


def test_the_engine_that_is_installed_has_no_assertions() -> None:
    assert not has_assertions()


def client_flow(count: int, credit: int, drain: bool = False, window: int = 100) -> bytes:
    """A flow of the client's link 0, of which it has received so many messages.

    window  transfers that it takes in all
    """
    fields = b"\x43\x52" + bytes([window]) + b"\x43\x52\x7f\x43\x52" + bytes([count])
    fields += b"\x52" + bytes([credit]) + b"\x40" + (b"\x41" if drain else b"\x42")
    return frame(b"\x00\x53\x13\xc0" + bytes([len(fields) + 1, 9]) + fields)


class Consuming:
    """A client with a link, written by hand.

    told  (delivered, credit) that the queue was told
    """

    def __init__(self) -> None:
        self.connection = opened_by_hand()
        self.connection.receive(frame(BEGIN) + receiver(0, b"r"))
        (request,) = self.connection.take_requests()
        self.connection.answer(request.token, asks.Consuming(CONSUMER))
        output(self.connection)
        self.told: list[tuple[int, int]] = []
        self._block = Block.decode(encode([b"m"] * 40, [b""] * 40, (b"", b"q"), 4, None))
        self._first = 0

    def says(self, flow: bytes, messages: int = 0) -> tuple[list[list[int]], int]:
        """Send a flow, after which messages come; return the answers and the number of messages.

        An answer is [delivery-count, credit, drain].
        """
        self.connection.receive(flow)
        for request in self.connection.take_requests():
            assert isinstance(request, asks.GrantCredit)
            self.told.append((request.delivered, request.credit))
            if request.drain:
                drained = asks.CreditDrained(request.delivered)
                self.connection.answer(request.token, drained)
        if messages:
            first, self._first = self._first, self._first + messages
            run = Run(first, first, first, self._first - 1)
            self.connection.deliver(CONSUMER, run, self._block)
        sent = output(self.connection)
        sent += output(self.connection)
        answers = [[*each[COUNT_CREDIT], each[DRAIN]] for each in flows(sent)]
        assert sent.rfind(FLOW) > sent.rfind(TRANSFER) or not answers, "messages precede"
        return answers, sent.count(TRANSFER)


def test_a_drain_with_less_credit_than_is_under_way_is_answered_with_what_was_sent() -> None:
    """Before: with the count that the client had, and then 7 messages above its next credit came.

    1. The client gives credit for 10, and 10 are sent.  2. It has received 3 when it gives credit
    for none and drains.  3. It has received 10 when it gives credit for 2.
    """
    client = Consuming()
    assert client.says(client_flow(0, 10), messages=10) == ([], 10)
    assert client.says(client_flow(3, 0, drain=True)) == ([[10, 0, 1]], 0)
    assert client.says(client_flow(10, 2), messages=5) == ([], 2)
    assert client.told == [(0, 10), (10, -7), (10, 2)]
    assert client.says(client_flow(12, 1, drain=True)) == ([[13, 0, 1]], 1)
    assert client.says(client_flow(13, 1)) == ([], 1)
    assert client.says(client_flow(13, 0, drain=True)) == ([[14, 0, 1]], 0)
    assert client.says(client_flow(13, 0, drain=True)) == ([[14, 0, 1]], 0)
    assert client.says(client_flow(14, 0, drain=True)) == ([[14, 0, 1]], 0)
    assert client.says(client_flow(14, 3), messages=5) == ([], 3)


def test_a_drain_below_what_waits_for_the_window_is_not_answered_and_loses_nothing() -> None:
    """Proton has taken the messages, and writes no flow of the link before them."""
    client = Consuming()
    assert client.says(client_flow(0, 10, window=4), messages=10) == ([], 4)
    assert client.says(client_flow(3, 2, drain=True, window=4)) == ([], 0)
    assert client.says(client_flow(3, 2, drain=True)) == ([], 1)
    assert client.says(client_flow(5, 5)) == ([], 5)
    assert client.says(client_flow(10, 0, drain=True)) == ([[10, 0, 1]], 0)
    assert client.says(client_flow(10, 1), messages=3) == ([], 1)
