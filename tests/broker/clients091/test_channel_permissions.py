"""Methods on a channel that the user's permissions do not allow."""

from __future__ import annotations

from typing import Any

import pamqp.commands as spec
import pytest

from tests.broker.clients091.peer import Peer
from warren_broker.access import requests
from warren_broker.access.requests import ExchangeFacts
from warren_machines.metadata.permissions import Permissions


@pytest.fixture
def peer() -> Peer:
    return Peer().connect().open()


@pytest.mark.parametrize(
    ("frame", "held", "text"),
    [
        (
            spec.Queue.Declare(queue="q"),
            {"write": ".*", "read": ".*"},
            "configure access to queue 'q' in vhost '/' refused for user 'guest'",
        ),
        (
            spec.Queue.Declare(queue="q", passive=True),
            {},
            "read access to queue 'q' in vhost '/' refused",
        ),
        (
            spec.Queue.Declare(queue="q", arguments={"x-dead-letter-exchange": "dlx"}),
            {"configure": ".*", "read": ".*"},
            "write access to exchange 'dlx'",
        ),
        (
            spec.Queue.Delete(queue="q"),
            {"write": ".*", "read": ".*"},
            "configure access to queue 'q'",
        ),
        (spec.Queue.Purge(queue="q"), {"write": ".*"}, "read access to queue 'q'"),
        (
            spec.Queue.Bind(queue="q", exchange="x", routing_key=""),
            {"read": ".*"},
            "write access to queue 'q'",
        ),
        (
            spec.Queue.Bind(queue="q", exchange="x", routing_key=""),
            {"write": ".*"},
            "read access to exchange 'x'",
        ),
        (spec.Exchange.Declare(exchange="x"), {}, "configure access to exchange 'x'"),
        (
            spec.Exchange.Declare(exchange="x", arguments={"alternate-exchange": "ae"}),
            {"configure": ".*", "read": ".*"},
            "write access to exchange 'ae'",
        ),
        (spec.Exchange.Delete(exchange="x"), {}, "configure access to exchange 'x'"),
        (
            spec.Exchange.Bind(destination="d", source="s"),
            {"read": ".*"},
            "write access to exchange 'd'",
        ),
        (spec.Basic.Get(queue="q"), {"write": ".*"}, "read access to queue 'q'"),
        (spec.Basic.Consume(queue="q"), {"write": ".*"}, "read access to queue 'q'"),
        (spec.Basic.Consume(queue="q"), {"read": "^other$"}, "read access to queue 'q'"),
    ],
)
def test_permissions(peer: Peer, frame: Any, held: dict[str, str], text: str) -> None:
    peer.view.held = Permissions(**held)
    peer.send(frame)
    peer.channel_closed(403, text)


def test_publish_permission(peer: Peer) -> None:
    peer.view.held = Permissions(write="^amq\\.direct$")
    peer.publish(exchange="amq.direct")
    peer.the(requests.PublishRequest)
    peer.publish(exchange="")
    peer.channel_closed(
        403, "write access to exchange 'amq.default' in vhost '/' refused", at=(60, 40)
    )


def test_passive_declares_want_any_permission(peer: Peer) -> None:
    for held in ({"configure": "q"}, {"write": "q"}, {"read": "q"}):
        peer.view.held = Permissions(**held)
        peer.send(spec.Queue.Declare(queue="q", passive=True))
        peer.answer(requests.QueueDeclareRequest, requests.QueueDeclared("q", 0, 0))
        peer.one(spec.Queue.DeclareOk)


def test_topic_permissions(peer: Peer) -> None:
    peer.view.topics = Permissions(write="^{username}\\.", read="^a")
    peer.publish(exchange="amq.topic", key="guest.a")
    peer.the(requests.PublishRequest)
    peer.publish(exchange="amq.topic", key="other.a")
    peer.channel_closed(
        403,
        "write access to topic 'other.a' in exchange 'amq.topic' "
        "in vhost '/' refused for user 'guest'",
    )
    peer.send(spec.Queue.Bind(queue="q", exchange="amq.topic", routing_key="b"))
    peer.channel_closed(403, "read access to topic 'b'")


def test_topic_permissions_are_not_those_of_an_exchange_that_delays_topics(peer: Peer) -> None:
    peer.view.exchanges["later"] = ExchangeFacts(kind="x-delayed-message")
    peer.view.topics = Permissions(write="^$", read="^$")
    peer.publish(exchange="later", key="any")
    peer.the(requests.PublishRequest)


def test_a_broken_pattern_allows_nothing() -> None:
    assert not Permissions(read="(").allows("read", "q")
    assert not Permissions(read="").allows("read", "q")
    assert Permissions(read="^q").allows("read", "queue")
