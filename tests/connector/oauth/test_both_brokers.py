"""One table of tokens at RabbitMQ and at Warren, with the same keys and settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika import exceptions

from connector.amqp.rabbitmq import OneRabbitMQ
from tests.patience import PATIENCE_S
from tests.signing_key import LONG_S, SigningKey
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]

ATTEMPTS = 4
QUEUES = ("q", "my queue", "a/b", "a*b", "ü")


@pytest.fixture(scope="module")
def warren(
    token_broker: tuple[OneRabbitMQ, SigningKey], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    table = {
        "resource_server_id": "rabbitmq",
        "signing_keys": {"k1": str(token_broker[1].public)},
        "default_key": "k1",
        "additional_scopes_key": "a.b roles",
        "scope_aliases": {"reader": "rabbitmq.read:*/q rabbitmq.write:*/amq.default"},
        "preferred_username_claims": ["user_name"],
    }
    with LocalCluster(
        1, tmp_path_factory.mktemp("both"), settings={"auth_oauth2": table}
    ) as cluster:
        for port in (token_broker[0].port, cluster.nodes[0].amqp_port):
            prepare(port)
        yield cluster


def observed(port: int, password: str) -> tuple[str, ...]:
    """Return what a client may do with that password: `ok`, or the code of the refusal."""
    login = pika.PlainCredentials("ignored", password)
    try:
        connection = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, credentials=login)
        )
    except exceptions.AMQPConnectionError as refused:
        return (type(refused).__name__,)
    acts: dict[str, Callable[[Any], Any]] = {
        **{f"get {queue}": lambda c, queue=queue: c.basic_get(queue, True) for queue in QUEUES},
        "send": lambda c: c.basic_publish("", "q", b""),
        "declare": lambda c: c.queue_declare("new-x", exclusive=True),
        "see": lambda c: c.queue_declare("q", passive=True),
        "bind": lambda c: c.queue_bind("q", "t", "a.b"),
        **{
            f"topic {name} {key}": lambda c, name=name, key=key: c.basic_publish(name, key, b"")
            for name, key in (("t", "a.b"), ("t", "x"), ("t", ""), ("t2", "a.b"))
        },
    }
    found = []
    for name, act in acts.items():
        channel = connection.channel()
        try:
            channel.confirm_delivery()
            act(channel)
            found.append(f"{name}: ok")
            channel.close()
        except exceptions.ChannelClosedByBroker as closed:
            user = closed.reply_text.rpartition(" for user ")[2]
            found.append(f"{name}: {closed.reply_code} {user}")
    connection.close()
    return tuple(found)


def prepare(port: int) -> None:
    login = pika.PlainCredentials("guest", "guest")
    with pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, credentials=login)
    ) as connection:
        channel = connection.channel()
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
        channel.exchange_declare("t", "topic", durable=True)
        channel.exchange_declare("t2", "topic", durable=True)


def read(*patterns: str) -> list[str]:
    return [f"rabbitmq.read:{pattern}" for pattern in patterns]


TOKENS: list[dict[str, Any]] = [
    {},
    {"scope": "rabbitmq.read:*/q rabbitmq.write:*/amq.default"},
    {"scope": read("*/my queue")},
    {"scope": "rabbitmq.read:*/my queue"},
    {"scope": read("*/my%20queue")},
    {"scope": read("*/my+queue")},
    {"scope": read("*/a%2Fb", "%2F/a%2Ab")},
    {"scope": read("*/a%2fb")},
    {"scope": read("*/a*b")},
    {"scope": read("*/%C3%BC")},
    {"scope": read("*/ü")},
    {"scope": read("*/%71", "*/%zz", "*/%")},
    {"scope": read("%2F/*")},
    {"scope": read("/q")},
    {"scope": read("//q")},
    {"scope": read("other/*")},
    {"scope": read("*")},
    {"scope": read("*/*/*")},
    {"scope": read("*/*/*/*")},
    {"scope": read("**/**")},
    {"scope": read("*/q*q")},
    {"scope": read("*/")},
    {"scope": read("*/Q")},
    {"scope": ["rabbitmq.write:*/t/a.*", "rabbitmq.read:*/t/a.b", "rabbitmq.write:*/q"]},
    {"scope": ["rabbitmq.write:*/t*/*"]},
    {"scope": ["rabbitmq.write:*/t"]},
    {"scope": ["rabbitmq.write:*/t/"]},
    {"scope": ["rabbitmq.read:*/*/*", "rabbitmq.write:*/*/*"]},
    {"scope": ["rabbitmq.configure:*/new-*"]},
    {"scope": ["rabbitmq.tag:administrator"]},
    {"scope": ["rabbitmq.tag:administrator", *read("%2F/nothing")]},
    {"scope": ["rabbitmq.tag:no-such-tag-7f", *read("*/*")]},
    {"scope": ["RABBITMQ.read:*/*"]},
    {"scope": ["rabbitmqread:*/*"]},
    {"scope": ["read:*/*"]},
    {"scope": ["other.read:*/*"]},
    {"scope": ["rabbitmq.all:*/*", "rabbitmq.:*/*"]},
    {"scope": "reader"},
    {"scope": ["reader", "openid"]},
    {"scope": None, "roles": "rabbitmq.read:*/q"},
    {"scope": None, "roles": {"rabbitmq": ["read:*/q"], "other": ["read:*/*"]}},
    {"scope": None, "roles": {"rabbitmq": "read:*/q write:*/amq.default"}},
    {"scope": None, "a": {"b": ["rabbitmq.read:*/q"]}},
    {"scope": None, "a": [{"b": "rabbitmq.read:*/q"}, {"b": ["reader"]}]},
    {"scope": None},
    {"scope": None, "roles": 7},
    {"user_name": "fred", "scope": read("*/q")},
    {"user_name": ["fred"], "scope": read("*/q")},
    {"sub": None, "scope": read("*/q")},
    {"sub": None, "client_id": None, "scope": read("*/q")},
    {"aud": "rabbitmq"},
    {"aud": "other rabbitmq"},
    {"aud": ["other", "rabbitmq"]},
    {"aud": ["other rabbitmq"]},
    {"aud": "rabbitmq2"},
    {"aud": []},
    {"aud": None},
    {"life_s": -5.0},
    {"life_s": 60.0},
    {"exp": None},
    {"exp": "2000000000"},
    {"exp": round(time.time()) + LONG_S + 0.5},
    {"iat": time.time() + LONG_S},
    {"key_id": "k2"},
    {"scope": [f"rabbitmq.read:*/{i}" for i in range(60)]},
]


@pytest.mark.long
def test_both_brokers_answer_alike(
    token_broker: tuple[OneRabbitMQ, SigningKey], warren: LocalCluster
) -> None:
    """Each is asked what a token may do, one after the other."""
    peer, key = token_broker
    ports = (peer.port, warren.nodes[0].amqp_port)
    differing = {}
    for claims in TOKENS:
        theirs, ours = (observed(port, key.token(**claims)) for port in ports)
        if theirs != ours:
            differing[str(claims)] = sorted(set(theirs) ^ set(ours))
    assert not differing, "\n" + "\n".join(
        f"{claims}: {what}" for claims, what in differing.items()
    )


def test_signatures_of_no_key(
    token_broker: tuple[OneRabbitMQ, SigningKey], warren: LocalCluster, tmp_path: Path
) -> None:
    peer, key = token_broker
    header, claims, signature = key.token().split(".")
    for token in (
        SigningKey(tmp_path).token(),
        f"{header}.{claims}.",
        f"{header}.{claims}.{signature[:-8]}AAAAAAAA",
        f"eyJhbGciOiJub25lIiwia2lkIjoiazEifQ.{claims}.",
        f"eyJhbGciOiJub25lIiwia2lkIjoiazEifQ.{claims}.{signature}",
        f"{header}.{claims}",
    ):
        answers = {observed(port, token) for port in (peer.port, warren.nodes[0].amqp_port)}
        assert answers == {("ProbableAuthenticationError",)}


def renewed(port: int, before: str, after: str) -> tuple[object, ...]:
    """Return what became of a connection with two consumers that is given another token."""
    login = pika.PlainCredentials("ignored", before)
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", port, credentials=login)
    )
    cancelled: list[str] = []
    got: list[bytes] = []
    channel = connection.channel()
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    for queue in ("q", "a/b"):
        channel.queue_purge(queue)
        channel.basic_consume(
            queue, lambda c, method, p, body: got.append(body), consumer_tag=f"of {queue}"
        )
    channel.basic_publish("", "q", b"held")
    deadline = time.monotonic() + PATIENCE_S
    while not got:
        assert time.monotonic() < deadline
        connection.process_data_events(0.1)
    try:
        connection.update_secret(after, "next")
        connection.process_data_events(1.0)
        channel.basic_ack(1)  # what it had before is still its
        channel.basic_publish("", "a/b", b"sent")
        connection.process_data_events(1.0)
        connection.close()
    except exceptions.ConnectionClosedByBroker as closed:
        return closed.reply_code, closed.reply_text
    except exceptions.ChannelClosedByBroker as closed:
        connection.close()
        return sorted(cancelled), got, closed.reply_code
    with pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", port, credentials=pika.PlainCredentials("guest", "guest")
        )
    ) as guest:
        left = guest.channel().queue_declare("q", passive=True).method.message_count
    return sorted(cancelled), got, left


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"scope": ["rabbitmq.read:*/a%2Fb", "rabbitmq.write:*/*"]},
        {"scope": ["rabbitmq.read:*/q", "rabbitmq.write:*/*"]},
        {"scope": ["rabbitmq.write:*/*"]},
        {"scope": ["rabbitmq.read:*/*"]},
        {"scope": ["rabbitmq.read:other/*"]},
        {"user_name": "another"},
        {"life_s": -5.0},
        {"aud": "other"},
    ],
)
def test_a_next_token_has_the_same_effect(
    token_broker: tuple[OneRabbitMQ, SigningKey], warren: LocalCluster, claims: dict[str, Any]
) -> None:
    peer, key = token_broker
    for _ in range(ATTEMPTS):  # a broker that stands still may tell of a cancel too late
        theirs, ours = (
            renewed(port, key.token(), key.token(**claims))
            for port in (peer.port, warren.nodes[0].amqp_port)
        )
        # RabbitMQ has three texts for a token that it does not take.
        if theirs == ours or theirs[0] == ours[0] == 530:
            return
    raise AssertionError((theirs, ours))
