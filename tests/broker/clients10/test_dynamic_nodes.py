"""Queues that end with their links, as pure objects: at every moment that the link may end."""

from __future__ import annotations

from typing import Any

import pytest
from proton import UNDESCRIBED, Array, Data, Link, Message, Terminus, symbol

from tests.broker.clients10.test_connection import Client
from tests.broker.clients10.test_links import asked, opened, received
from warren_broker.clients10 import link_requests as asks
from warren_wire import errors
from warren_wire.amqp10.message.received import read_message
from warren_wire.kernel import MessageTable, Route

NAME = "amq.rabbitmq.reply-to.xyz"
TEMPORARY = "amq.dyn-c ö/1-xyz"


def client_with() -> Client:
    """A client for which the broker makes what it asks for, unless told otherwise."""
    client = opened()
    client.answers[asks.OpenReplies] = asks.RepliesOpened(NAME)
    client.answers[asks.DeclareTemporary] = asks.TemporaryDeclared(TEMPORARY)
    return client


def attach(client: Client, kind: str, *, sender: bool = False, credit: int = 0) -> Any:
    link = client.session.sender("s") if sender else client.session.receiver("r")
    terminus = link.target if sender else link.source
    terminus.dynamic = True
    terminus.expiry_policy = Terminus.EXPIRE_WITH_LINK
    terminus.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, symbol(kind)))
    if kind == "rabbitmq:volatile-queue":
        link.snd_settle_mode = Link.SND_SETTLED
    link.open()
    client.turn()
    if credit:
        link.flow(credit)
        client.turn()
    return link


def table(*bodies: bytes) -> MessageTable:
    made = MessageTable()
    for body in bodies:
        message = read_message(memoryview(Message(body=body, inferred=True).encode()))
        route = Route(b"", NAME.encode(), False)
        made.append(route, message.properties, bytes(message.body), 4, 0, message.flags)
    return made


def test_a_reply_needs_credit_and_fits_or_is_dropped() -> None:
    client = client_with()
    receiver = attach(client, "rabbitmq:volatile-queue", credit=2)
    assert receiver.remote_source.address == f"/queues/{NAME}"
    assert receiver.remote_source.dynamic
    replies = table(b"a", b"b", b"c")
    for at in range(3):
        client.connection.reply(NAME, replies, at)
    client.connection.reply("amq.rabbitmq.reply-to.other", replies, 0)
    client.turn()
    assert [bytes(message.body) for _, message in received(receiver)] == [b"a", b"b"]
    receiver.flow(1)
    client.turn()
    assert not received(receiver), "the third was dropped"
    client.connection.reply(NAME, replies, 2)
    client.turn()
    assert [bytes(message.body) for _, message in received(receiver)] == [b"c"]


def test_a_reply_above_the_clients_limit_is_dropped() -> None:
    client = client_with()
    receiver = client.session.receiver("r")
    receiver.max_message_size = 200
    receiver.source.dynamic = True
    receiver.source.expiry_policy = Terminus.EXPIRE_WITH_LINK
    receiver.source.capabilities.put_object(
        Array(UNDESCRIBED, Data.SYMBOL, symbol("rabbitmq:volatile-queue"))
    )
    receiver.snd_settle_mode = Link.SND_SETTLED
    receiver.open()
    receiver.flow(5)
    client.turn()
    replies = table(b"x" * 200, b"small")
    for at in range(2):
        client.connection.reply(NAME, replies, at)
    client.turn()
    assert [bytes(message.body) for _, message in received(receiver)] == [b"small"]


def test_a_drain_of_replies_is_answered_at_once() -> None:
    client = client_with()
    receiver = attach(client, "rabbitmq:volatile-queue")
    receiver.drain(5)
    client.turn()
    assert receiver.credit == 0 and not receiver.draining()


@pytest.mark.parametrize("answered", [True, False])
def test_a_name_for_replies_ends_with_its_link(answered: bool) -> None:
    client = client_with()
    if not answered:
        del client.answers[asks.OpenReplies]
    receiver = attach(client, "rabbitmq:volatile-queue")
    receiver.close()
    client.turn()
    if not answered:
        (request,) = asked(client, asks.OpenReplies)
        client.connection.answer(request.token, asks.RepliesOpened(NAME))
        client.turn()
    assert [closed.name for closed in asked(client, asks.CloseReplies)] == [NAME]
    client.connection.reply(NAME, table(b"late"), 0)
    assert not client.connection.reply_links


@pytest.mark.parametrize("sender", [False, True])
@pytest.mark.parametrize("answered", [True, False])
def test_a_temporary_queue_ends_with_its_link(sender: bool, answered: bool) -> None:
    client = client_with()
    if not answered:
        del client.answers[asks.DeclareTemporary]
    link = attach(client, "temporary-queue", sender=sender)
    if answered:
        terminus = link.remote_target if sender else link.remote_source
        assert terminus.address == "/queues/amq.dyn-c%20%C3%B6%2F1-xyz"
        assert terminus.dynamic
    link.close()
    client.turn()
    if not answered:
        (request,) = asked(client, asks.DeclareTemporary)
        client.connection.answer(request.token, asks.TemporaryDeclared(TEMPORARY))
        client.turn()
        assert not asked(client, asks.Consume) and not asked(client, asks.OpenTarget)
    assert [deleted.queue for deleted in asked(client, asks.DeleteTemporary)] == [TEMPORARY]


@pytest.mark.parametrize("sender", [False, True])
def test_a_temporary_queue_that_may_not_be_made_is_a_refused_link(sender: bool) -> None:
    client = client_with()
    client.answers[asks.DeclareTemporary] = errors.AccessRefused("no right to configure it")
    link = attach(client, "temporary-queue", sender=sender)
    assert link.remote_condition.name == "amqp:unauthorized-access"
    assert not asked(client, asks.DeleteTemporary)
    link.close()
    client.turn()
    assert not asked(client, asks.DeleteTemporary)


def test_a_temporary_queue_that_may_not_be_read_is_deleted() -> None:
    client = client_with()
    client.answers[asks.Consume] = errors.AccessRefused("no right to read it")
    receiver = attach(client, "temporary-queue")
    assert receiver.remote_condition.name == "amqp:unauthorized-access"
    receiver.close()
    client.turn()
    assert [deleted.queue for deleted in asked(client, asks.DeleteTemporary)] == [TEMPORARY]
