"""Exchanges and queues: declared, deleted, bound; the texts of refusals."""

from __future__ import annotations

from typing import Any

import pamqp.commands as spec
import pytest

from tests.broker.clients091.peer import Peer
from warren_broker.access import requests
from warren_machines.metadata import commands as metadata
from warren_wire import errors


@pytest.fixture
def peer() -> Peer:
    return Peer().connect().open()


# ------------------------------------------------------------------ exchanges


def test_exchange_methods(peer: Peer) -> None:
    peer.send(
        spec.Exchange.Declare(
            exchange="x",
            exchange_type="topic",
            durable=True,
            auto_delete=True,
            internal=True,
            arguments={"a": "b"},
        )
    )
    made = peer.answer(requests.DefineRequest).command
    assert made == metadata.DeclareExchange(
        "/",
        "x",
        "topic",
        durable=True,
        auto_delete=True,
        internal=True,
        arguments={"a": "b"},
    )
    peer.one(spec.Exchange.DeclareOk)
    peer.send(spec.Exchange.Bind(destination="d", source="s", routing_key="k"))
    made = peer.answer(requests.DefineRequest).command
    assert isinstance(made, metadata.Bind)
    assert (made.source, made.destination, made.to_queue, made.routing_key) == (
        "s",
        "d",
        False,
        "k",
    )
    peer.one(spec.Exchange.BindOk)
    peer.send(spec.Exchange.Unbind(destination="d", source="s", routing_key="k"))
    assert isinstance(peer.answer(requests.DefineRequest).command, metadata.Unbind)
    peer.one(spec.Exchange.UnbindOk)
    peer.send(spec.Exchange.Delete(exchange="x", if_unused=True))
    assert peer.answer(requests.DefineRequest).command.if_unused
    peer.one(spec.Exchange.DeleteOk)


@pytest.mark.parametrize(
    ("frame", "request_kind", "result"),
    [
        (spec.Exchange.Declare(exchange="x", nowait=True), requests.DefineRequest, None),
        (spec.Exchange.Delete(exchange="x", nowait=True), requests.DefineRequest, None),
        (
            spec.Exchange.Bind(destination="d", source="s", nowait=True),
            requests.DefineRequest,
            None,
        ),
        (
            spec.Exchange.Unbind(destination="d", source="s", nowait=True),
            requests.DefineRequest,
            None,
        ),
        (
            spec.Queue.Declare(queue="q", nowait=True),
            requests.QueueDeclareRequest,
            requests.QueueDeclared("q", 0, 0),
        ),
        (
            spec.Queue.Delete(queue="q", nowait=True),
            requests.QueueDeleteRequest,
            requests.MessageCount(0),
        ),
        (
            spec.Queue.Purge(queue="q", nowait=True),
            requests.QueuePurgeRequest,
            requests.MessageCount(0),
        ),
        (spec.Queue.Bind(queue="q", exchange="x", nowait=True), requests.DefineRequest, None),
        (
            spec.Basic.Consume(queue="q", consumer_tag="c", nowait=True),
            requests.ConsumeRequest,
            None,
        ),
    ],
)
def test_no_wait_has_no_answer_but_an_order(
    peer: Peer, frame: Any, request_kind: Any, result: Any
) -> None:
    peer.send(frame)
    peer.send(spec.Channel.Flow(True))
    peer.nothing()
    peer.answer(request_kind, result)
    peer.one(spec.Channel.FlowOk)


@pytest.mark.parametrize(
    "frame",
    [
        spec.Exchange.Declare(exchange="", exchange_type="direct"),
        spec.Exchange.Delete(exchange=""),
        spec.Exchange.Bind(destination="", source="s"),
        spec.Exchange.Bind(destination="d", source=""),
        spec.Queue.Bind(queue="q", exchange="", routing_key="k"),
        spec.Queue.Unbind(queue="q", exchange="", routing_key="k"),
    ],
)
def test_the_default_exchange_is_not_to_be_touched(peer: Peer, frame: Any) -> None:
    peer.send(frame)
    peer.channel_closed(403, "ACCESS_REFUSED - operation not permitted on the default exchange")


def test_a_passive_declaration_looks_at_what_is_there(peer: Peer) -> None:
    peer.view.exchanges["x"] = requests.ExchangeFacts("topic")
    peer.send(spec.Exchange.Declare(exchange="x", passive=True))
    peer.one(spec.Exchange.DeclareOk)
    assert not peer.asked()
    peer.send(spec.Exchange.Declare(exchange="y", passive=True))
    peer.channel_closed(404, "NOT_FOUND - no exchange 'y' in vhost '/'")


def test_system_exchanges_stay(peer: Peer) -> None:
    peer.send(spec.Exchange.Delete(exchange="amq.topic"))
    peer.channel_closed(
        403, "deletion of system exchange 'amq.topic' in vhost '/' not allowed", at=(40, 20)
    )


def test_a_refusal_that_ends_the_connection(peer: Peer) -> None:
    peer.send(spec.Exchange.Declare(exchange="x", exchange_type="what"))
    peer.answer(requests.DefineRequest, errors.CommandInvalid("unknown exchange type 'what'"))
    frames = peer.got()
    close = frames[-1][1]
    assert (close.reply_code, close.class_id, close.method_id) == (503, 40, 10)


# ------------------------------------------------------------------ queues


def test_queue_methods(peer: Peer) -> None:
    peer.send(
        spec.Queue.Declare(queue="q", durable=True, auto_delete=True, arguments={"x-max-length": 5})
    )
    made = peer.answer(requests.QueueDeclareRequest, requests.QueueDeclared("q", 1, 2))
    assert made == requests.QueueDeclareRequest(
        token=made.token,
        session=made.session,
        name="q",
        passive=False,
        durable=True,
        exclusive=False,
        auto_delete=True,
        arguments={"x-max-length": 5},
        server_named=False,
    )
    peer.one(spec.Queue.DeclareOk)
    peer.send(spec.Queue.Bind(queue="q", exchange="x", routing_key="k", arguments={"a": 1}))
    made = peer.answer(requests.DefineRequest).command
    assert isinstance(made, metadata.Bind)
    assert (made.source, made.destination, made.to_queue, made.routing_key, made.arguments) == (
        "x",
        "q",
        True,
        "k",
        {"a": 1},
    )
    peer.one(spec.Queue.BindOk)
    peer.send(spec.Queue.Unbind(queue="q", exchange="x", routing_key="k"))
    assert isinstance(peer.answer(requests.DefineRequest).command, metadata.Unbind)
    peer.one(spec.Queue.UnbindOk)
    peer.send(spec.Queue.Purge(queue="q"))
    peer.answer(requests.QueuePurgeRequest, requests.MessageCount(7))
    assert peer.one(spec.Queue.PurgeOk).message_count == 7
    peer.send(spec.Queue.Delete(queue="q", if_unused=True, if_empty=True))
    made = peer.answer(requests.QueueDeleteRequest, requests.MessageCount(8))
    assert (made.if_unused, made.if_empty) == (True, True)
    assert peer.one(spec.Queue.DeleteOk).message_count == 8


def test_exclusive_queues_are_not_durable(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="q", durable=True, exclusive=True))
    made = peer.the(requests.QueueDeclareRequest)
    assert (made.durable, made.exclusive) == (False, True)


def test_server_named_queue_and_the_last_declared_one(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="", exclusive=True))
    made = peer.the(requests.QueueDeclareRequest)
    assert made.server_named
    assert made.name == "amq.gen-" + "1".zfill(22)
    peer.conn.answer(made.token, requests.QueueDeclared(made.name, 0, 0))
    assert peer.one(spec.Queue.DeclareOk).queue == made.name
    peer.send(spec.Queue.Bind(queue="", exchange="x", routing_key=""))
    bound = peer.answer(requests.DefineRequest).command
    assert (bound.destination, bound.routing_key) == (made.name, made.name)
    peer.send(spec.Queue.Bind(queue="", exchange="x", routing_key="k"))
    assert peer.answer(requests.DefineRequest).command.routing_key == "k"
    peer.send(spec.Basic.Get(queue=""))
    assert peer.answer(requests.GetRequest, requests.GotNothing()).queue == made.name
    peer.send(spec.Basic.Consume(queue="", consumer_tag="c"))
    assert peer.answer(requests.ConsumeRequest).queue == made.name
    peer.send(spec.Queue.Purge(queue=""))
    assert peer.answer(requests.QueuePurgeRequest, requests.MessageCount(0)).name == made.name
    peer.send(spec.Queue.Delete(queue=""))
    assert peer.answer(requests.QueueDeleteRequest, requests.MessageCount(0)).name == made.name


@pytest.mark.parametrize(
    "frame",
    [
        spec.Queue.Bind(queue="", exchange="x", routing_key="k"),
        spec.Queue.Purge(queue=""),
        spec.Queue.Delete(queue=""),
        spec.Basic.Get(queue=""),
        spec.Basic.Consume(queue="", consumer_tag="c"),
        spec.Queue.Unbind(queue="", exchange="x", routing_key="k"),
    ],
)
def test_no_queue_declared_yet(peer: Peer, frame: Any) -> None:
    peer.send(frame)
    peer.channel_closed(404, "NOT_FOUND - no previously declared queue")


def test_name_prefix(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="", arguments={"x-name-prefix": "mine-"}))
    made = peer.answer(requests.QueueDeclareRequest, requests.QueueDeclared("mine-1", 0, 0))
    assert made.name.startswith("mine-")
    assert "x-name-prefix" not in made.arguments
    peer.got()
    peer.send(spec.Queue.Declare(queue="", arguments={"x-name-prefix": "m" * 65}))
    peer.channel_closed(406, "exceeds the 64-byte limit")


@pytest.mark.specification("quorum-queues: Server-named queues")
def test_server_named_quorum_queues_are_refused(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="", arguments={"x-queue-type": "quorum"}))
    peer.channel_closed(406, "Cannot declare a server-named queue for type rabbit_quorum_queue")


def test_reserved_names(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="amq.mine"))
    peer.channel_closed(403, "queue name 'amq.mine' contains reserved prefix 'amq.*'")
    peer.send(spec.Queue.Declare(queue="amq.mine", passive=True))
    assert peer.the(requests.QueueDeclareRequest).passive


REFUSALS = [
    (
        errors.inequivalent(
            "durable", "queue", "q", "/", errors.render_field(False), errors.render_field(True)
        ),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'q' in vhost '/': "
        "received 'false' but current is 'true'",
    ),
    (
        errors.inequivalent(
            "x-max-length",
            "queue",
            "q",
            "/",
            errors.render_argument(None),
            errors.render_argument(5),
        ),
        406,
        "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': "
        "received none but current is the value '5' of type 'signedint'",
    ),
    (
        errors.locked_queue("q", "/"),
        405,
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'q' in vhost '/'. It "
        "could be originally declared on another connection or the exclusive property value does "
        "not match that of the original declaration.",
    ),
    (errors.no_queue("q", "/"), 404, "NOT_FOUND - no queue 'q' in vhost '/'"),
    (errors.in_use("queue", "q", "/"), 406, "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"),
    (errors.not_empty("q", "/"), 406, "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"),
    (
        errors.exclusive_use("q", "/"),
        403,
        "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use",
    ),
]


@pytest.mark.parametrize(("refusal", "code", "text"), REFUSALS)
def test_texts_of_refusals(peer: Peer, refusal: errors.Refusal, code: int, text: str) -> None:
    peer.send(spec.Queue.Declare(queue="q"))
    peer.answer(requests.QueueDeclareRequest, refusal)
    close = peer.one(spec.Channel.Close)
    assert close.reply_code == code
    assert close.reply_text == text


def test_a_text_is_cut_at_255_bytes(peer: Peer) -> None:
    peer.send(spec.Queue.Declare(queue="q"))
    peer.answer(requests.QueueDeclareRequest, errors.no_queue("ü" * 200, "/"))
    text = peer.one(spec.Channel.Close).reply_text
    assert 253 <= len(text.encode()) <= 255
