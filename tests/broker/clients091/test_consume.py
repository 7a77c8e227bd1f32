"""Consumers: deliveries, acknowledgements, cancels, gets, prefetch."""

from __future__ import annotations

from typing import Any

import pamqp.commands as spec
import pytest

from tests.broker.clients091.peer import Peer, message, messages, run, settles, tags
from tests.wire.kernel import frames
from warren_broker.access import requests
from warren_broker.clients091.state import GETTERS_KEPT
from warren_machines.queue import commands
from warren_machines.queue.commands import Checkout
from warren_machines.queue.ready.limits import NO_ACK_WINDOW, WINDOW_BYTES
from warren_wire import errors
from warren_wire.arguments import DURATION_MS_MAX, Kind


@pytest.fixture
def peer() -> Peer:
    return Peer().connect().open()


# ------------------------------------------------------------------ consume


def test_consume(peer: Peer) -> None:
    peer.view.queue_types["q"] = "quorum"
    peer.send(spec.Basic.Qos(prefetch_count=10))
    peer.one(spec.Basic.QosOk)
    peer.send(
        spec.Basic.Consume(
            queue="q",
            consumer_tag="c",
            exclusive=True,
            arguments={"x-priority": -5, "x-consumer-timeout": 60_000, "other": "o"},
        )
    )
    peer.nothing()
    made = peer.answer(requests.ConsumeRequest)
    assert made == requests.ConsumeRequest(
        token=made.token,
        session=101,
        queue="q",
        command=Checkout(1001, 101, "c", 10, False, -5, False, True, 60_000),
        arguments=made.arguments,
    )
    assert made.arguments["other"] == "o"
    assert peer.one(spec.Basic.ConsumeOk).consumer_tag == "c"


def test_server_named_tag(peer: Peer) -> None:
    peer.send(spec.Basic.Consume(queue="q"))
    made = peer.answer(requests.ConsumeRequest).command
    assert made.tag == "amq.ctag-" + "1".zfill(22)
    assert peer.one(spec.Basic.ConsumeOk).consumer_tag == made.tag


def test_prefetch_is_for_new_consumers_only(peer: Peer) -> None:
    assert peer.consume("q", "a").prefetch == 0
    peer.send(spec.Basic.Qos(prefetch_count=7))
    peer.got()
    assert not peer.asked()
    assert peer.consume("q", "b").prefetch == 7
    assert peer.consume("q", "n", no_ack=True).prefetch == 0


def test_a_tag_used_twice(peer: Peer) -> None:
    peer.consume("q", "c")
    peer.send(spec.Basic.Consume(queue="r", consumer_tag="c"))
    peer.connection_closed(530, "NOT_ALLOWED - attempt to reuse consumer tag 'c'")


def test_tags_are_the_channels_own(peer: Peer) -> None:
    peer.consume("q", "c")
    peer.open(2)
    peer.consume("q", "c", channel=2)


@pytest.mark.parametrize(
    "refusal",
    [errors.exclusive_use("q", "/"), errors.no_queue("q", "/"), errors.locked_queue("q", "/")],
)
def test_consume_refused(peer: Peer, refusal: errors.Refusal) -> None:
    peer.send(spec.Basic.Consume(queue="q", consumer_tag="c"))
    peer.answer(requests.ConsumeRequest, refusal)
    peer.channel_closed(refusal.reply_code, refusal.detail, at=(60, 20))
    assert not peer.conn.state.consumers


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"x-priority": "high"}, ': "expected integer, got longstr"'),
        ({"x-priority": True}, ': "expected integer, got bool"'),
        ({"x-priority": None}, ': "expected integer, got void"'),
        ({"x-consumer-timeout": -1}, ": {value_negative,-1}"),
        ({"x-consumer-timeout": DURATION_MS_MAX + 1}, ": {value_too_large,315360000001}"),
        ({"x-consumer-timeout": "1h"}, ': "expected integer, got longstr"'),
        ({"x-stream-offset": "first"}, " of queue type rabbit_{kind}_queue"),
        ({"x-stream-offset": True}, " of queue type rabbit_{kind}_queue"),
        ({"x-cancel-on-ha-failover": "yes"}, ": {unacceptable_type,longstr}"),
    ],
)
def test_consume_arguments(peer: Peer, arguments: dict[str, Any], text: Any, kind: Kind) -> None:
    """The texts are those of RabbitMQ 3.10 for queues of these kinds."""
    peer.view.queue_types["q"] = kind
    text = text.replace("{kind}", kind)
    peer.send(spec.Basic.Consume(queue="q", consumer_tag="c", arguments=arguments))
    (name,) = arguments
    peer.channel_closed(406, f"invalid arg '{name}' for queue 'q' in vhost '/'{text}", at=(60, 20))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("told", [True, False])
def test_cancel_on_ha_failover_is_for_clients_that_understand_basic_cancel(
    peer: Peer, kind: Kind, told: bool
) -> None:
    peer.view.queue_types["q"] = kind
    peer.conn.state.capabilities = frozenset({"consumer_cancel_notify"} if told else ())
    for asked in (True, False):
        arguments = {"x-cancel-on-ha-failover": asked}
        peer.send(spec.Basic.Consume(queue="q", consumer_tag=f"c{asked}", arguments=arguments))
        request = peer.answer(requests.ConsumeRequest)
        assert request.cancel_on_failover is (asked and told)
        assert peer.one(spec.Basic.ConsumeOk).consumer_tag == f"c{asked}"


def test_a_queue_that_is_not_there_is_what_a_consumer_hears_of_first(peer: Peer) -> None:
    peer.send(spec.Basic.Consume(queue="q", arguments={"x-priority": "high"}))
    peer.answer(requests.ConsumeRequest, errors.no_queue("q", "/"))
    peer.channel_closed(404, "no queue 'q' in vhost '/'")


# ------------------------------------------------------------------ deliveries


def test_a_delivery(peer: Peer) -> None:
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0), message(b"body", content_type="text/plain"))
    deliver, header, body = (frame for _, frame in peer.got())
    assert (deliver.consumer_tag, deliver.delivery_tag, deliver.redelivered) == ("c", 1, False)
    assert (deliver.exchange, deliver.routing_key) == ("", "q")
    assert header.properties.content_type == "text/plain"
    assert not header.properties.headers
    assert body.value == b"body"


def test_a_redelivery_tells_how_often(peer: Peer) -> None:
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0, failed=2, acquired=3), message())
    deliver, header, _ = (frame for _, frame in peer.got())
    assert deliver.redelivered
    assert header.properties.headers == {"x-acquired-count": 3, "x-delivery-count": 2}


def test_runs_are_numbered_through(peer: Peer) -> None:
    peer.consume("q", "a")
    peer.consume("r", "b")
    peer.conn.deliver(1001, run(0, 3), messages(3))
    peer.conn.deliver(1002, run(0, 2, first=1), messages(3))
    peer.conn.deliver(1001, run(3, 2), messages(2))
    assert tags(peer) == [1, 2, 3, 4, 5, 6, 7]


def test_bodies_are_cut_at_frame_max() -> None:
    peer = Peer().connect(frame_max=4096).open()
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0), message(b"x" * 10_000))
    frames = [frame for _, frame in peer.got()]
    assert [len(frame.value) for frame in frames[2:]] == [4088, 4088, 1824]


def test_deliveries_never_come_before_consume_ok(peer: Peer) -> None:
    peer.send(spec.Basic.Consume(queue="q", consumer_tag="c"))
    made = peer.the(requests.ConsumeRequest)
    peer.conn.deliver(made.command.consumer, run(0), message())
    peer.nothing()
    peer.conn.answer(made.token, requests.RequestDone())
    names = [frame.name for _, frame in peer.got()]
    assert names[:2] == ["Basic.ConsumeOk", "Basic.Deliver"]


def test_a_repeated_delivery_is_dropped(peer: Peer) -> None:
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0, 3), messages(5))
    assert tags(peer) == [1, 2, 3]
    peer.conn.deliver(1001, run(0, 3), messages(5))
    peer.nothing()
    peer.conn.deliver(1001, run(1, 4, first=1), messages(5))
    assert tags(peer) == [4, 5]
    peer.send(spec.Basic.Ack(5, True))
    assert peer.the(commands.Settle).msg_ids == ((0, 4),)


def test_a_delivery_to_nobody_is_dropped(peer: Peer) -> None:
    peer.conn.deliver(7, run(0), message())
    peer.nothing()


# ------------------------------------------------------------------ acknowledgements


@pytest.fixture
def holding(peer: Peer) -> Peer:
    """Tags 1 … 10 of consumer 1001, 11 … 13 of 1002, 14 … 20 of 1001."""
    peer.consume("q", "a")
    peer.consume("r", "b")
    peer.conn.deliver(1001, run(0, 10), messages(10))
    peer.conn.deliver(1002, run(0, 3), messages(3))
    peer.conn.deliver(1001, run(10, 7), messages(7))
    assert len(tags(peer)) == 20
    return peer


def test_ack_one(holding: Peer) -> None:
    holding.send(spec.Basic.Ack(4))
    assert settles(holding) == [("Settle", 1001, ((3, 3),))]


def test_ack_multiple_over_consumers(holding: Peer) -> None:
    holding.send(spec.Basic.Ack(15, True))
    assert settles(holding) == [("Settle", 1001, ((0, 11),)), ("Settle", 1002, ((0, 2),))]
    holding.send(spec.Basic.Ack(20, True))
    assert settles(holding) == [("Settle", 1001, ((12, 16),))]


def test_ack_all(holding: Peer) -> None:
    holding.send(spec.Basic.Ack(4))
    holding.asked()
    holding.send(spec.Basic.Ack(0, True))
    assert settles(holding) == [
        ("Settle", 1001, ((0, 2), (4, 16))),
        ("Settle", 1002, ((0, 2),)),
    ]
    holding.send(spec.Basic.Ack(0, True))
    assert settles(holding) == []
    holding.nothing()


def test_singles_in_a_row_are_one_request(holding: Peer) -> None:
    from pamqp.frame import marshal

    holding.conn.receive(b"".join(marshal(spec.Basic.Ack(tag), 1) for tag in range(1, 9)))
    assert settles(holding) == [("Settle", 1001, ((0, 7),))]


def test_nack_and_reject(holding: Peer) -> None:
    holding.send(spec.Basic.Nack(2, multiple=True, requeue=True))
    assert holding.asked() == [commands.Return(consumer=1001, msg_ids=((0, 1),), failed=False)]
    holding.send(spec.Basic.Nack(3, multiple=False, requeue=False))
    assert settles(holding) == [("Discard", 1001, ((2, 2),))]
    holding.send(spec.Basic.Reject(4, requeue=True))
    assert holding.asked() == [commands.Return(consumer=1001, msg_ids=((3, 3),), failed=True)]
    holding.send(spec.Basic.Reject(5, requeue=False))
    assert settles(holding) == [("Discard", 1001, ((4, 4),))]


@pytest.mark.parametrize(
    ("frame", "at"),
    [
        (spec.Basic.Ack(21), (60, 80)),
        (spec.Basic.Ack(21, True), (60, 80)),
        (spec.Basic.Ack(0), (60, 80)),
        (spec.Basic.Nack(99), (60, 120)),
        (spec.Basic.Reject(99), (60, 90)),
    ],
)
def test_unknown_tag(holding: Peer, frame: Any, at: tuple[int, int]) -> None:
    holding.send(frame)
    holding.channel_closed(
        406, f"PRECONDITION_FAILED - unknown delivery tag {frame.delivery_tag}", at=at
    )


def test_a_tag_twice(holding: Peer) -> None:
    holding.send(spec.Basic.Ack(3))
    holding.send(spec.Basic.Ack(3))
    settle, down = holding.asked()
    assert settle.msg_ids == ((2, 2),)
    assert down.consumers == (1001, 1002)
    assert "unknown delivery tag 3" in holding.got()[-1][1].reply_text


def test_acks_up_to_the_unknown_tag_count(holding: Peer) -> None:
    from pamqp.frame import marshal

    holding.send(spec.Basic.Ack(5))
    holding.asked()
    holding.conn.receive(b"".join(marshal(spec.Basic.Ack(tag), 1) for tag in range(3, 9)))
    settle, _ = holding.asked()
    assert settle.msg_ids == ((2, 3),)
    assert "unknown delivery tag 5" in holding.got()[-1][1].reply_text


def test_recover(holding: Peer) -> None:
    holding.send(spec.Basic.Recover(True))
    holding.one(spec.Basic.RecoverOk)
    assert holding.asked() == [
        commands.Return(consumer=1001, msg_ids=((0, 16),), failed=False),
        commands.Return(consumer=1002, msg_ids=((0, 2),), failed=False),
    ]
    holding.send(spec.Basic.RecoverAsync(True))
    holding.nothing()
    holding.send(spec.Basic.Recover(False))
    holding.connection_closed(540, "NOT_IMPLEMENTED - requeue=false")


# ------------------------------------------------------------------ no_ack


def test_no_ack_deliveries_are_not_held(peer: Peer) -> None:
    made = peer.consume("q", "c", no_ack=True)
    assert made.no_ack
    peer.conn.deliver(1001, run(0, 3), messages(3))
    assert tags(peer) == [1, 2, 3]
    peer.send(spec.Basic.Ack(1))
    peer.channel_closed(406, "unknown delivery tag 1")


def test_the_window_moves_as_output_is_taken(peer: Peer) -> None:
    peer.consume("q", "c", no_ack=True)
    half = NO_ACK_WINDOW // 2
    peer.conn.deliver(1001, run(0, half - 1), messages(half - 1))
    peer.conn.take_output()
    assert not peer.asked()
    peer.conn.deliver(1001, run(half - 1, 5), messages(5))
    assert not peer.asked()
    assert peer.conn.wants_output
    peer.conn.take_output()
    assert peer.asked() == [commands.Credit(consumer=1001, delivered=half + 4, credit=0)]
    peer.conn.take_output()
    assert not peer.asked()


def test_the_window_moves_by_bytes_too(peer: Peer) -> None:
    peer.consume("q", "c", no_ack=True)
    peer.conn.deliver(1001, run(0), message(b"x" * (WINDOW_BYTES // 2)))
    peer.conn.take_output()
    assert peer.the(commands.Credit).delivered == 1


# ------------------------------------------------------------------ cancel


def test_cancel(holding: Peer) -> None:
    holding.send(spec.Basic.Cancel("a"))
    made = holding.the(requests.CancelRequest)
    assert made.consumer == 1001
    holding.conn.deliver(1001, run(17), message())
    assert tags(holding) == [21]  # it was under way
    holding.conn.answer(made.token, requests.RequestDone())
    assert holding.one(spec.Basic.CancelOk).consumer_tag == "a"
    holding.conn.deliver(1001, run(18), message())
    holding.nothing()
    holding.send(spec.Basic.Ack(21))
    assert settles(holding) == [("Settle", 1001, ((17, 17),))]
    holding.consume("q", "a")
    holding.send(spec.Channel.Close(200, "", 0, 0))
    assert holding.the(requests.SessionDownRequest).consumers == (
        1001,
        1002,
        1003,
    )


def test_consumers_that_hold_nothing_are_forgotten(peer: Peer) -> None:
    for _ in range(3):
        peer.consume("q", "c")
        peer.send(spec.Basic.Cancel("c"))
        number = peer.answer(requests.CancelRequest).consumer
        peer.got()
        assert peer.the(requests.ForgetConsumerRequest).consumer == number
    assert not peer.conn.state.channels[1].past


@pytest.mark.parametrize("how", [spec.Basic.Ack(0, True), spec.Basic.Nack(0, True, True)])
def test_a_cancelled_consumer_is_forgotten_with_its_last_delivery(holding: Peer, how: Any) -> None:
    """Before: with its channel. It is told after the settlement, which needs its queue."""
    holding.send(spec.Basic.Cancel("a"))
    holding.answer(requests.CancelRequest)
    holding.one(spec.Basic.CancelOk)
    holding.send(spec.Basic.Ack(16, True))
    assert [type(each).__name__ for each in holding.asked()] == ["Settle"] * 2
    holding.consume("q", "a")
    holding.send(how)
    settled, forgotten = holding.asked()
    assert (settled.consumer, settled.msg_ids) == (1001, ((13, 16),))
    assert forgotten == requests.ForgetConsumerRequest(session=101, consumer=1001, getter=False)
    assert not holding.conn.state.channels[1].past


def test_a_cancelled_consumer_is_remembered_while_a_transaction_settles_for_it(
    holding: Peer,
) -> None:
    holding.send(spec.Tx.Select())
    holding.one(spec.Tx.SelectOk)
    holding.send(spec.Basic.Ack(0, True))
    holding.send(spec.Basic.Cancel("a"))
    holding.answer(requests.CancelRequest)
    holding.one(spec.Basic.CancelOk)
    assert not holding.asked()
    holding.send(spec.Tx.Commit())
    holding.one(spec.Tx.CommitOk)
    assert requests.ForgetConsumerRequest(session=101, consumer=1001, getter=False) in (
        holding.asked()
    )


def test_queues_that_were_asked_by_get_are_forgotten_when_nothing_is_held(peer: Peer) -> None:
    """Before: each queue that a channel was ever asked for, also those deleted since."""
    for number in range(GETTERS_KEPT + 1):
        peer.send(spec.Basic.Get(queue=f"q{number}"))
        (*forgotten, made) = peer.asked()
        assert isinstance(made, requests.GetRequest)
        assert not forgotten or number == GETTERS_KEPT
        if number == 5:
            got = requests.GotMessage(run(0), message(), 0)
            peer.conn.answer(made.token, got)
        else:
            peer.conn.answer(made.token, requests.GotNothing())
        peer.got()
    assert [each.consumer for each in forgotten] == [
        1001 + at for at in range(GETTERS_KEPT) if at != 5
    ]
    assert all(each.getter for each in forgotten)
    assert list(peer.conn.state.channels[1].getters) == ["q5", f"q{GETTERS_KEPT}"]
    peer.send(spec.Basic.Ack(1))
    assert settles(peer) == [("Settle", 1006, ((0, 0),))]


def test_cancel_of_an_unknown_tag(peer: Peer) -> None:
    peer.send(spec.Basic.Cancel("never"))
    peer.one(spec.Basic.CancelOk)


def test_cancel_without_answer(peer: Peer) -> None:
    peer.consume("q", "c")
    peer.send(spec.Basic.Cancel("c", nowait=True))
    peer.answer(requests.CancelRequest)
    peer.nothing()


@pytest.mark.parametrize("reason", ["deleted", "timeout", "disconnected"])
def test_cancelled_by_the_queue(holding: Peer, reason: str) -> None:
    holding.conn.cancelled(1001, reason, 60_000)
    cancel = holding.one(spec.Basic.Cancel)
    assert cancel.consumer_tag == "a"
    assert cancel.nowait
    holding.send(spec.Basic.CancelOk("a"))
    holding.send(spec.Basic.Ack(1))
    assert settles(holding) == [("Settle", 1001, ((0, 0),))]  # harmless, maybe late
    holding.nothing()
    holding.send(spec.Basic.Cancel("a"))
    holding.one(spec.Basic.CancelOk)


def deaf() -> Peer:
    peer = Peer().connect({}).open()
    peer.consume("q", "c")
    return peer


def test_timeout_of_a_client_that_does_not_know_cancels() -> None:
    peer = deaf()
    peer.conn.cancelled(1001, "timeout", 60_000)
    peer.channel_closed(
        406,
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout "
        "value used: 60000 ms. This timeout value can be configured, see consumers doc guide "
        "to learn more",
        at=(0, 0),
    )


def test_deletion_is_not_told_to_a_client_that_does_not_know_cancels() -> None:
    peer = deaf()
    peer.conn.cancelled(1001, "deleted")
    peer.nothing()
    assert not peer.conn.state.consumers


# ------------------------------------------------------------------ get


def test_get(peer: Peer) -> None:
    peer.send(spec.Basic.Get(queue="q"))
    made = peer.the(requests.GetRequest)
    assert (made.consumer, made.queue, made.no_ack, made.session) == (1001, "q", False, 101)
    peer.conn.answer(made.token, requests.GotMessage(run(0, acquired=1), message(b"body"), 41))
    ok, header, body = (frame for _, frame in peer.got())
    assert (ok.delivery_tag, ok.redelivered, ok.message_count) == (1, True, 41)
    assert (ok.exchange, ok.routing_key) == ("", "q")
    assert header.properties.headers == {"x-acquired-count": 1}
    assert body.value == b"body"
    peer.send(spec.Basic.Get(queue="q", no_ack=True))
    made = peer.the(requests.GetRequest)
    assert (made.consumer, made.no_ack) == (1001, True)
    peer.conn.answer(made.token, requests.GotMessage(run(1), message(), 40))
    assert peer.got()[0][1].delivery_tag == 2
    peer.send(spec.Basic.Get(queue="q"))
    peer.answer(requests.GetRequest, requests.GotNothing())
    peer.one(spec.Basic.GetEmpty)
    peer.send(spec.Basic.Ack(1))
    assert settles(peer) == [("Settle", 1001, ((0, 0),))]
    peer.send(spec.Channel.Close(200, "", 0, 0))
    assert peer.the(requests.SessionDownRequest).consumers == (1001,)


def test_gets_of_a_queue_that_was_declared_again_keep_the_number_they_were_given(
    peer: Peer,
) -> None:
    """Before, only with a message: the queue remembered another number for each get of nothing."""
    peer.send(spec.Basic.Get(queue="q"))
    peer.answer(requests.GetRequest, requests.GotMessage(run(0), message(), 0))
    peer.got()
    peer.send(spec.Basic.Get(queue="q"))
    made = peer.answer(requests.GetRequest, requests.GotNothing(getter=77))
    assert made.consumer == 1001
    peer.one(spec.Basic.GetEmpty)
    peer.send(spec.Basic.Get(queue="q"))
    made = peer.answer(requests.GetRequest, requests.GotNothing())
    assert made.consumer == 77
    peer.one(spec.Basic.GetEmpty)
    peer.send(spec.Basic.Ack(1))
    (acked, forgotten) = peer.asked()
    assert (acked.consumer, acked.msg_ids) == (1001, ((0, 0),)), "the old queue's is not the new's"
    assert forgotten == requests.ForgetConsumerRequest(session=101, consumer=1001, getter=False)


def test_get_of_a_queue_that_is_not_there(peer: Peer) -> None:
    peer.send(spec.Basic.Get(queue="q"))
    peer.answer(requests.GetRequest, errors.no_queue("q", "/"))
    peer.channel_closed(404, "no queue 'q' in vhost '/'", at=(60, 70))


def test_it_is_told_whether_only_acknowledgements_came(peer: Peer) -> None:
    """They may wait in the socket; what else comes, or releases deliveries here, may not."""
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0, 10), messages(10))
    peer.got()
    peer.send(spec.Basic.Ack(1))
    assert peer.conn.only_acks
    peer.send(spec.Basic.Nack(2))
    assert not peer.conn.only_acks
    peer.send(spec.Basic.Ack(4, True))
    assert peer.conn.only_acks
    peer.conn.receive(frames.ack(1, 5) + frames.reject(1, 6))
    assert not peer.conn.only_acks
    peer.send(spec.Tx.Select())
    assert not peer.conn.only_acks
    peer.send(spec.Basic.Ack(7))
    assert not peer.conn.only_acks, "the commit waits for it"


def test_acknowledgements_release_what_a_shared_prefetch_holds(peer: Peer) -> None:
    peer.send(spec.Basic.Qos(prefetch_count=10, global_=True))
    peer.got()
    peer.consume("q", "c")
    peer.conn.deliver(1001, run(0, 10), messages(10))
    peer.got()
    peer.send(spec.Basic.Ack(1))
    assert not peer.conn.only_acks
