"""Publishes: what is handed over, refused, returned, confirmed; transactions."""

from __future__ import annotations

from array import array
from typing import Any

import pamqp.body
import pamqp.commands as spec
import pamqp.header
import pytest

from tests.broker.clients091.peer import Peer, message, messages, run, whole
from warren_broker.access import requests
from warren_machines.queue import commands
from warren_wire import errors
from warren_wire.amqp091 import codec, methods, properties
from warren_wire.kernel import Selection


@pytest.fixture
def peer() -> Peer:
    return Peer().connect().open()


@pytest.fixture
def confirming(peer: Peer) -> Peer:
    peer.send(spec.Confirm.Select())
    peer.one(spec.Confirm.SelectOk)
    return peer


def acks(peer: Peer) -> list[tuple[str, int, bool]]:
    """What the publisher was told."""
    told = []
    for channel, frame in peer.got():
        assert channel == 1
        told.append((frame.name.removeprefix("Basic."), frame.delivery_tag, frame.multiple))
    return told


def part(publish: requests.PublishRequest, *positions: int) -> Selection:
    """Some messages of a publish, relative to its first one."""
    return Selection(
        publish.table,
        publish.first,
        publish.last,
        array("I", [publish.first + at for at in positions]),
    )


# ------------------------------------------------------------------ handed over


def test_a_run_is_one_request(peer: Peer) -> None:
    peer.publish(b"x", key="k", count=100)
    published = peer.the(requests.PublishRequest)
    assert (published.first, published.last) == (0, 100)
    assert (published.confirm, published.mandatory, published.session) == (False, False, 101)
    assert published.table.route(99).routing_key == b"k"
    assert published.table.body(99) == b"x"


def test_runs_of_channels_are_their_own(peer: Peer) -> None:
    peer.open(2)
    peer.publish(b"a", channel=1)
    peer.publish(b"b", channel=2)
    one, two = peer.asked()
    assert (one.session, two.session) == (101, 102)


def test_answers_to_publishes_that_nobody_waits_for(peer: Peer) -> None:
    peer.publish(count=3)
    published = peer.the(requests.PublishRequest)
    peer.conn.routed(published.token, [])
    peer.conn.confirmed(published.token, 0, True)
    peer.nothing()


# ------------------------------------------------------------------ refused


def test_unknown_exchange_after_good_messages(peer: Peer) -> None:
    from pamqp.frame import marshal

    def frames(exchange: str, body: bytes) -> bytes:
        return (
            marshal(spec.Basic.Publish(exchange=exchange, routing_key="q"), 1)
            + marshal(pamqp.header.ContentHeader(0, len(body), spec.Basic.Properties()), 1)
            + marshal(pamqp.body.ContentBody(body), 1)
        )

    peer.conn.receive(
        frames("", b"a") + frames("amq.direct", b"b") + frames("nope", b"c") + frames("", b"d")
    )
    published, down = peer.asked()
    assert (published.first, published.last) == (0, 2)
    assert isinstance(down, requests.SessionDownRequest)
    close = peer.one(spec.Channel.Close)
    assert close.reply_text == "NOT_FOUND - no exchange 'nope' in vhost '/'"
    assert (close.reply_code, close.class_id, close.method_id) == (404, 60, 40)


def test_internal_exchange(peer: Peer) -> None:
    peer.publish(exchange="inner")
    peer.channel_closed(
        403, "ACCESS_REFUSED - cannot publish to internal exchange 'inner' in vhost '/'"
    )


@pytest.mark.parametrize(
    "expiration, flaw",
    [
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("soon", "no_integer"),
        ("", "no_integer"),
        (" 5", "no_integer"),
        ("4294967296", "{value_too_large,4294967296}"),
    ],
)
def test_expiration(peer: Peer, expiration: str, flaw: str) -> None:
    peer.publish(expiration="100")
    assert peer.the(requests.PublishRequest).table.ttl_ms(0) == 100
    peer.publish(raw=properties.encode(properties.Properties(expiration=expiration)))
    peer.channel_closed(
        406, f"PRECONDITION_FAILED - invalid expiration '{expiration}': {flaw}", at=(60, 40)
    )


def test_user_id(peer: Peer) -> None:
    peer.publish(user_id="guest")
    peer.the(requests.PublishRequest)
    peer.view.user_tags = ("impersonator",)
    peer.publish(user_id="other")
    peer.the(requests.PublishRequest)
    peer.view.user_tags = ()
    peer.publish(user_id="other")
    peer.channel_closed(406, "user_id property set to 'other' but authenticated user was 'guest'")


def test_immediate(peer: Peer) -> None:
    peer.conn.receive(codec.method_frame(1, methods.BasicPublish(routing_key="q", immediate=True)))
    peer.connection_closed(540, "NOT_IMPLEMENTED - immediate=true")


def test_too_large() -> None:
    peer = Peer(message_bytes_max=100).connect().open()
    peer.publish(b"x" * 100)
    peer.the(requests.PublishRequest)
    peer.publish(b"x" * 101)
    peer.channel_closed(406, "message size 101 is larger than")


def test_header_of_another_class(peer: Peer) -> None:
    peer.conn.receive(
        codec.method_frame(1, methods.BasicPublish(routing_key="q"))
        + codec.frame(2, 1, b"\x00\x32" + bytes(12))
    )
    peer.connection_closed(505, "UNEXPECTED_FRAME")


# ------------------------------------------------------------------ returned


def test_unroutable_and_mandatory_comes_back_before_its_confirm(confirming: Peer) -> None:
    peer = confirming
    peer.publish(b"body", exchange="amq.direct", key="k", mandatory=True, message_id="m1")
    published = peer.the(requests.PublishRequest)
    assert published.mandatory
    peer.conn.routed(published.token, [])
    frames = [frame for _, frame in peer.got()]
    back, header, body, ack = frames
    assert (back.reply_code, back.reply_text) == (312, "NO_ROUTE")
    assert (back.exchange, back.routing_key) == ("amq.direct", "k")
    assert header.properties.message_id == "m1"
    assert body.value == b"body"
    assert (ack.name, ack.delivery_tag) == ("Basic.Ack", 1)


def test_unroutable_and_not_mandatory_is_confirmed(confirming: Peer) -> None:
    confirming.publish(count=2)
    confirming.conn.routed(confirming.the(requests.PublishRequest).token, [])
    assert acks(confirming) == [("Ack", 2, True)]


def test_unroutable_without_confirms(peer: Peer) -> None:
    peer.publish(b"body", mandatory=True, count=3)
    published = peer.the(requests.PublishRequest)
    peer.conn.routed(published.token, [part(published, 0, 2)])
    back, _, body = (frame for _, frame in peer.got())
    assert back.name == "Basic.Return"
    assert body.value == b"body"


def test_an_empty_body_comes_back(peer: Peer) -> None:
    peer.publish(b"", mandatory=True)
    peer.conn.routed(peer.the(requests.PublishRequest).token, [])
    _, header = (frame for _, frame in peer.got())
    assert header.body_size == 0


# ------------------------------------------------------------------ confirmed


def publishes(peer: Peer, count: int = 1) -> requests.PublishRequest:
    peer.publish(count=count)
    published: requests.PublishRequest = peer.the(requests.PublishRequest)
    assert published.confirm
    return published


def routed(peer: Peer, *counts: int) -> list[requests.PublishRequest]:
    """Publish runs of so many messages, each of which goes to one queue."""
    runs = [publishes(peer, count) for count in counts]
    for published in runs:
        peer.conn.routed(published.token, [whole(published)])
    return runs


def test_one_message_is_confirmed_without_multiple(confirming: Peer) -> None:
    published = publishes(confirming)
    confirming.conn.routed(published.token, [whole(published)])
    confirming.nothing()
    confirming.conn.confirmed(published.token, 0, True)
    assert acks(confirming) == [("Ack", 1, False)]


def test_runs_are_confirmed_by_one_ack(confirming: Peer) -> None:
    first, second = routed(confirming, 100, 50)
    for published in (first, second):
        confirming.conn.confirmed(published.token, 0, True)
    assert acks(confirming) == [("Ack", 150, True)]


def test_later_ones_do_not_confirm_earlier_ones(confirming: Peer) -> None:
    first, second = routed(confirming, 2, 2)
    confirming.conn.confirmed(second.token, 0, True)
    assert acks(confirming) == [("Ack", 3, False), ("Ack", 4, False)]
    confirming.conn.confirmed(first.token, 0, True)
    assert acks(confirming) == [("Ack", 2, True)]


def test_all_queues_must_have_it(confirming: Peer) -> None:
    published = publishes(confirming, 3)
    confirming.conn.routed(published.token, [whole(published)] * 3)
    for number in (2, 0):
        confirming.conn.confirmed(published.token, number, True)
        confirming.nothing()
    confirming.conn.confirmed(published.token, 1, True)
    assert acks(confirming) == [("Ack", 3, True)]


def test_parts_of_a_run_to_different_queues(confirming: Peer) -> None:
    published = publishes(confirming, 6)
    confirming.conn.routed(published.token, [part(published, 0, 2, 4), part(published, 1, 2)])
    assert acks(confirming) == [("Ack", 4, False), ("Ack", 6, False)]  # 4 and 6 went nowhere
    confirming.conn.confirmed(published.token, 0, True)
    assert acks(confirming) == [("Ack", 1, True), ("Ack", 5, False)]
    confirming.conn.confirmed(published.token, 1, True)
    assert acks(confirming) == [("Ack", 3, True)]


def test_refused_by_a_queue(confirming: Peer) -> None:
    published = publishes(confirming, 3)
    confirming.conn.routed(published.token, [whole(published)])
    confirming.conn.confirmed(published.token, 0, False)
    assert acks(confirming) == [("Nack", 3, True)]


def test_refused_by_one_of_two_queues_is_refused_at_once(confirming: Peer) -> None:
    published = publishes(confirming, 3)
    confirming.conn.routed(published.token, [whole(published)] * 2)
    confirming.conn.confirmed(published.token, 0, False)
    assert acks(confirming) == [("Nack", 3, True)]
    confirming.conn.confirmed(published.token, 1, True)
    confirming.nothing()


def test_some_refused(confirming: Peer) -> None:
    published = publishes(confirming, 4)
    confirming.conn.routed(published.token, [whole(published)])
    confirming.conn.confirmed(published.token, 0, False, refused=[published.first + 2])
    assert acks(confirming) == [("Ack", 2, True), ("Ack", 4, False), ("Nack", 3, True)]


def test_an_ack_with_multiple_never_covers_a_refused_one(confirming: Peer) -> None:
    first, second = routed(confirming, 1, 3)
    confirming.conn.confirmed(second.token, 0, True)
    confirming.conn.confirmed(first.token, 0, False)
    assert acks(confirming) == [
        ("Ack", 2, False),
        ("Ack", 3, False),
        ("Ack", 4, False),
        ("Nack", 1, True),
    ]


def test_confirm_select_without_answer(peer: Peer) -> None:
    peer.send(spec.Confirm.Select(nowait=True))
    peer.nothing()
    assert publishes(peer).confirm


def test_messages_before_confirm_select_are_not_numbered(peer: Peer) -> None:
    peer.publish(count=5)
    assert not peer.the(requests.PublishRequest).confirm
    peer.send(spec.Confirm.Select())
    peer.got()
    published = publishes(peer)
    peer.conn.routed(published.token, [whole(published)])
    peer.conn.confirmed(published.token, 0, True)
    assert acks(peer) == [("Ack", 1, False)]


def test_confirms_are_told_before_the_channel_is_closed(confirming: Peer) -> None:
    published = publishes(confirming)
    confirming.conn.routed(published.token, [whole(published)])
    confirming.conn.confirmed(published.token, 0, True)
    confirming.publish(exchange="nope")
    ack, close = (frame.name for _, frame in confirming.got())
    assert (ack, close) == ("Basic.Ack", "Channel.Close")
    confirming.asked()
    confirming.send(spec.Channel.CloseOk())
    confirming.open()
    confirming.publish()
    assert not confirming.the(requests.PublishRequest).confirm


# ------------------------------------------------------------------ transactions


@pytest.fixture
def transactional(peer: Peer) -> Peer:
    peer.send(spec.Tx.Select())
    peer.one(spec.Tx.SelectOk)
    return peer


@pytest.mark.specification("mirrored-queues: a tx.commit-ok will only be returned")
def test_commit(transactional: Peer) -> None:
    peer = transactional
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0), message())
    peer.got()
    peer.publish(b"a")
    peer.publish(b"b", key="r")
    peer.send(spec.Basic.Ack(1))
    assert not peer.asked()
    peer.send(spec.Tx.Commit())
    peer.publish(b"next")
    one, two, settle = peer.asked()
    assert (one.table.body(one.first), two.table.body(two.first)) == (b"a", b"b")
    assert settle == commands.Settle(consumer=1001, msg_ids=((0, 0),))
    for published in (one, two):
        assert published.confirm
        peer.conn.routed(published.token, [whole(published)])
        peer.nothing()
    peer.conn.confirmed(two.token, 0, True)
    peer.nothing()
    peer.conn.confirmed(one.token, 0, True)
    peer.one(spec.Tx.CommitOk)
    assert not peer.asked()  # the next transaction has begun
    peer.send(spec.Tx.Commit())
    published = peer.the(requests.PublishRequest)
    assert published.table.body(published.first) == b"next"


def test_commit_of_nothing(transactional: Peer) -> None:
    for _ in range(3):
        transactional.send(spec.Tx.Commit())
    assert [frame.name for _, frame in transactional.got()] == ["Tx.CommitOk"] * 3


def test_many_commits_in_one_go(transactional: Peer) -> None:
    from pamqp.frame import marshal

    transactional.conn.receive(marshal(spec.Tx.Commit(), 1) * 5000)
    assert len(transactional.got()) == 5000


def test_unroutable_in_a_transaction_comes_back_at_commit(transactional: Peer) -> None:
    transactional.publish(mandatory=True)
    transactional.nothing()
    transactional.send(spec.Tx.Commit())
    transactional.conn.routed(transactional.the(requests.PublishRequest).token, [])
    names = [frame.name for _, frame in transactional.got()]
    assert names == ["Basic.Return", "ContentHeader", "ContentBody", "Tx.CommitOk"]


def test_rollback(transactional: Peer) -> None:
    peer = transactional
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0, 3), messages(3))
    peer.got()
    peer.publish()
    peer.send(spec.Basic.Ack(2))
    peer.send(spec.Basic.Nack(1, requeue=True))
    peer.send(spec.Tx.Rollback())
    peer.one(spec.Tx.RollbackOk)
    peer.send(spec.Tx.Commit())
    peer.one(spec.Tx.CommitOk)
    assert not peer.asked()
    peer.send(spec.Basic.Ack(3, True))
    peer.send(spec.Tx.Commit())
    assert peer.the(commands.Settle).msg_ids == ((0, 2),)


def test_refused_in_a_transaction(transactional: Peer) -> None:
    transactional.publish()
    transactional.send(spec.Tx.Commit())
    published = transactional.the(requests.PublishRequest)
    transactional.conn.routed(published.token, [whole(published)])
    transactional.conn.confirmed(published.token, 0, False)
    transactional.channel_closed(406, "PRECONDITION_FAILED - partial tx completion", at=(90, 20))


def test_the_transaction_of_a_deleted_user_is_not_committed(transactional: Peer) -> None:
    """Each publish was permitted; what makes them happen is the commit, and that is not."""
    transactional.publish()
    transactional.view.held = None
    transactional.send(spec.Tx.Commit())
    transactional.channel_closed(
        403, "ACCESS_REFUSED - access to vhost '/' refused for user 'guest'", at=(90, 20)
    )
    assert not [one for one in transactional.asked() if isinstance(one, requests.PublishRequest)]


@pytest.mark.parametrize("frame", [spec.Tx.Commit(), spec.Tx.Rollback()])
def test_not_transactional(peer: Peer, frame: Any) -> None:
    peer.send(frame)
    peer.channel_closed(406, "PRECONDITION_FAILED - channel is not transactional")


def test_confirms_and_transactions_exclude_each_other(peer: Peer) -> None:
    peer.send(spec.Confirm.Select())
    peer.got()
    peer.send(spec.Tx.Select())
    peer.channel_closed(406, "cannot switch from confirm to tx mode")
    peer.send(spec.Tx.Select())
    peer.got()
    peer.send(spec.Confirm.Select())
    peer.channel_closed(406, "cannot switch from tx to confirm mode")


# ------------------------------------------------------------------ direct replies


def test_request_and_reply(peer: Peer) -> None:
    peer.send(spec.Basic.Consume(queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=True))
    opened = peer.the(requests.OpenRepliesRequest)
    assert opened.name.startswith("amq.rabbitmq.reply-to.")
    peer.one(spec.Basic.ConsumeOk)
    peer.publish(b"ask", reply_to="amq.rabbitmq.reply-to", correlation_id="7", count=2)
    published = peer.the(requests.PublishRequest)
    for at in range(published.first, published.last):
        given = properties.decode(published.table.properties_of(at))
        assert (given.reply_to, given.correlation_id) == (opened.name, "7")
    peer.publish(b"answer", key=opened.name, correlation_id="7")
    reply = peer.the(requests.PublishRequest)
    peer.conn.deliver_reply(opened.session, reply.table, reply.first)
    deliver, header, body = (frame for _, frame in peer.got())
    assert (deliver.consumer_tag, deliver.routing_key) == ("r", opened.name)
    assert (deliver.delivery_tag, deliver.redelivered) == (1, False)
    assert header.properties.correlation_id == "7"
    assert body.value == b"answer"
    peer.send(spec.Basic.Cancel("r"))
    assert peer.the(requests.CloseRepliesRequest).name == opened.name
    peer.one(spec.Basic.CancelOk)
    peer.conn.deliver_reply(opened.session, reply.table, reply.first)
    peer.nothing()


def test_replies_end_with_their_channel(peer: Peer) -> None:
    peer.send(spec.Basic.Consume(queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=True))
    opened = peer.the(requests.OpenRepliesRequest)
    peer.got()
    peer.send(spec.Channel.Close(200, "", 0, 0))
    closed, down = peer.asked()
    assert closed == requests.CloseRepliesRequest(session=opened.session, name=opened.name)
    assert isinstance(down, requests.SessionDownRequest)


def test_replies_are_not_acknowledged(peer: Peer) -> None:
    peer.send(spec.Basic.Consume(queue="amq.rabbitmq.reply-to", consumer_tag="r"))
    peer.channel_closed(406, "reply consumer cannot acknowledge")


def test_one_reply_consumer_is_enough(peer: Peer) -> None:
    for tag in ("r", "s"):
        peer.send(spec.Basic.Consume(queue="amq.rabbitmq.reply-to", consumer_tag=tag, no_ack=True))
    frames = peer.got()
    assert frames[-1][1].reply_text == "PRECONDITION_FAILED - reply consumer already set"


def test_reply_to_without_a_reply_consumer(peer: Peer) -> None:
    peer.publish(reply_to="amq.rabbitmq.reply-to.someone")
    peer.the(requests.PublishRequest)
    peer.publish(reply_to="amq.rabbitmq.reply-to")
    peer.channel_closed(406, "fast reply consumer does not exist")


def test_asking_whether_a_reply_queue_is_there(peer: Peer) -> None:
    peer.view.reply_names.add("amq.rabbitmq.reply-to.there")
    peer.send(spec.Queue.Declare(queue="amq.rabbitmq.reply-to.there", passive=True))
    assert peer.one(spec.Queue.DeclareOk).consumer_count == 1
    peer.send(spec.Queue.Declare(queue="amq.rabbitmq.reply-to.gone"))
    peer.channel_closed(404, "no queue 'amq.rabbitmq.reply-to.gone' in vhost '/'")


def test_binding_a_reply_queue(peer: Peer) -> None:
    peer.send(spec.Queue.Bind(queue="amq.rabbitmq.reply-to", exchange="amq.direct"))
    peer.channel_closed(403, "cannot bind or unbind to a volatile (direct reply-to) queue")


def test_a_refusal_by_the_carrier_closes_the_channel(peer: Peer) -> None:
    """errors stay as they are told: the carrier may know better than the view did"""
    peer.send(spec.Basic.Get(queue="q"))
    peer.answer(requests.GetRequest, errors.Unavailable("queue 'q' in vhost '/' has no leader"))
    peer.connection_closed(541, "INTERNAL_ERROR - queue 'q'")
