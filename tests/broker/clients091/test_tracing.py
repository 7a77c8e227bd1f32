"""What a connection asks to be traced: every message that is sent, where tracing is on."""

from __future__ import annotations

import pamqp.commands as spec
import pytest

from tests.broker.clients091.peer import Peer, run
from tests.broker.clients091.test_unsendable import LARGE, block, small_frames
from tests.wire.kernel import frames as f
from warren_broker.access import requests


def traced(peer: Peer) -> list[requests.TraceRequest]:
    return [each for each in peer.asked() if isinstance(each, requests.TraceRequest)]


@pytest.mark.parametrize("no_ack", [False, True])
def test_what_is_sent_is_traced_by_run(no_ack: bool) -> None:
    peer = small_frames(no_ack=no_ack)
    peer.conn.deliver(1001, run(0, 3), block(*[f.PLAIN] * 5))
    assert traced(peer) == [], "tracing is off"
    peer.view.traced_vhosts.add("other")
    peer.conn.deliver(1001, run(3), block(*[f.PLAIN] * 5))
    assert traced(peer) == [], "it is on in another vhost"
    peer.view.traced_vhosts.add("/")
    peer.conn.deliver(1001, run(4, 2), block(*[f.PLAIN] * 6))
    (trace,) = traced(peer)
    assert (trace.queue, trace.channel, trace.redelivered) == ("q", 1, False)
    assert trace.last - trace.first == 2 and trace.headers is None
    peer.view.traced_vhosts.clear()
    peer.conn.deliver(1001, run(6), block(*[f.PLAIN] * 7))
    assert traced(peer) == []


def test_a_message_that_cannot_be_sent_is_not_traced() -> None:
    peer = small_frames()
    peer.view.traced_vhosts.add("/")
    peer.conn.deliver(1001, run(0, 3), block(f.PLAIN, LARGE, f.PLAIN))
    assert [(each.first, each.last) for each in traced(peer)] == [(0, 1), (2, 3)]


def test_a_redelivery_says_so() -> None:
    peer = small_frames()
    peer.view.traced_vhosts.add("/")
    peer.conn.deliver(1001, run(0, failed=2, acquired=3), block(f.PLAIN))
    (trace,) = traced(peer)
    assert trace.redelivered
    assert trace.headers == {"x-acquired-count": 3, "x-delivery-count": 2}


def test_a_get_is_traced() -> None:
    peer = Peer().connect().open()
    peer.view.traced_vhosts.add("/")
    peer.send(spec.Basic.Get(queue="q"))
    peer.answer(requests.GetRequest, requests.GotMessage(run(0), block(f.PLAIN), 0))
    (trace,) = traced(peer)
    assert (trace.queue, trace.first, trace.last) == ("q", 0, 1)


def test_a_direct_reply_is_traced() -> None:
    peer = Peer().connect().open()
    peer.view.traced_vhosts.add("/")
    peer.send(spec.Basic.Consume(queue="amq.rabbitmq.reply-to", consumer_tag="r", no_ack=True))
    opened = peer.the(requests.OpenRepliesRequest)
    peer.publish(b"answer", key=opened.name)
    published = peer.the(requests.PublishRequest)
    assert published.channel == 1
    peer.conn.deliver_reply(opened.session, published.table, published.first)
    (trace,) = traced(peer)
    assert trace.queue == opened.name and trace.messages is published.table
