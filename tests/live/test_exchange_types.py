"""The exchange types that choose one destination, with pika and from every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.exceptions import ChannelClosedByBroker, UnroutableError

from live.conftest import Broker, eventually

pytestmark = pytest.mark.live

CLASSIC = {"x-queue-type": "classic"}


@pytest.fixture
def channels(broker: Broker) -> Iterator[list[Any]]:
    """One channel per node."""
    connections = [broker.connect(node) for node in range(len(broker.uris))]
    opened = [connection.channel() for connection in connections]
    yield opened
    for connection in connections:
        connection.close()


def emptied(channel: Any, names: list[str], count: int) -> dict[str, str]:
    """Take `count` messages out of these queues: body to queue."""
    found: dict[str, str] = {}

    def all_there() -> bool:
        for name in names:
            while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
                assert got[2].decode() not in found, got
                found[got[2].decode()] = name
        return len(found) == count

    eventually(all_there, f"{count} messages in {names}; {len(found)} are there")
    return found


def test_consistent_hash_is_the_same_on_every_node_and_moves_little(
    channels: list[Any], queue_name: str
) -> None:
    first = channels[0]
    names = [f"{queue_name}.{number}" for number in range(4)]
    first.exchange_declare(queue_name, "x-consistent-hash", durable=True)
    try:
        for name in names:
            first.queue_declare(name, durable=True)
            first.queue_bind(name, queue_name, "2" if name == names[3] else "1")
        keys = [f"key.{number}" for number in range(150)]

        def publish_everywhere() -> dict[str, str]:
            for number, channel in enumerate(channels):
                for key in keys:
                    channel.basic_publish(queue_name, key, f"{key} {number}")
            found = emptied(first, names, len(keys) * len(channels))
            for key in keys:
                assert len({found[f"{key} {number}"] for number in range(len(channels))}) == 1, key
            return {key: found[f"{key} 0"] for key in keys}

        before = publish_everywhere()
        shares = Counter(before.values())
        assert all(8 <= shares[name] <= 52 for name in names[:3]), shares
        assert 33 <= shares[names[3]] <= 87, shares
        first.queue_unbind(names[0], queue_name, "1")
        after = publish_everywhere()
        assert names[0] not in after.values()
        if len(channels) > 1:  # RabbitMQ moves others, too
            assert all(after[key] == was for key, was in before.items() if was != names[0])
    finally:
        first.exchange_delete(queue_name)
        for name in names:
            first.queue_delete(name)


def test_hash_of_a_header_a_property_and_chance(channels: list[Any], queue_name: str) -> None:
    channel = channels[0]
    names = [f"{queue_name}.{number}" for number in range(3)]
    kinds = {
        "header": ("x-consistent-hash", {"hash-header": "customer"}),
        "property": ("x-consistent-hash", {"hash-property": "message_id"}),
        "modulus": ("x-modulus-hash", {}),
        "random": ("x-random", {}),
    }
    try:
        for name in names:
            channel.queue_declare(name, durable=True)
        for word, (kind, arguments) in kinds.items():
            channel.exchange_declare(f"{queue_name}.{word}", kind, arguments=arguments)
            for name in names:
                channel.queue_bind(name, f"{queue_name}.{word}", "1")
        for word in kinds:
            for number in range(100):
                equal = number % 40
                properties = pika.BasicProperties(
                    headers={"customer": equal}, message_id=f"m{equal}"
                )
                key = f"k{equal}" if word == "modulus" else f"{number}"
                exchange = f"{queue_name}.{word}"
                channel.basic_publish(exchange, key, f"{number}", properties)
            found = emptied(channel, names, 100)
            assert set(found.values()) == set(names), word
            together = [
                {found[f"{number}"] for number in range(100) if number % 40 == equal}
                for equal in range(40)
            ]
            if word == "random":
                assert any(len(some) > 1 for some in together)
            else:
                assert all(len(some) == 1 for some in together), (word, together)
    finally:
        for word in kinds:
            channel.exchange_delete(f"{queue_name}.{word}")
        for name in names:
            channel.queue_delete(name)


def test_local_random_stays_on_the_node(channels: list[Any], queue_name: str) -> None:
    names = [f"{queue_name}.{number}" for number in range(len(channels))]
    for channel in channels:
        channel.confirm_delivery()
    channels[0].exchange_declare(queue_name, "x-local-random", durable=True)
    try:
        for channel, name in zip(channels, names, strict=True):
            channel.queue_declare(name, durable=True, arguments=CLASSIC)
        with pytest.raises(UnroutableError):
            channels[0].basic_publish(queue_name, "any", b"x", mandatory=True)
        for channel, name in zip(channels, names, strict=True):
            channel.queue_bind(name, queue_name, "")
        for number, channel in enumerate(channels):
            for again in range(10):
                channel.basic_publish(queue_name, "any", f"{number} {again}", mandatory=True)
        found = emptied(channels[0], names, 10 * len(channels))
        for body, name in found.items():
            assert name == names[int(body.split()[0])], (body, name)
    finally:
        channels[0].exchange_delete(queue_name)
        for name in names:
            channels[0].queue_delete(name)


def test_refusals(broker: Broker, channels: list[Any], queue_name: str) -> None:
    channel = channels[0]
    channel.queue_declare(queue_name, durable=True, arguments={"x-queue-type": "quorum"})
    channel.exchange_declare(f"{queue_name}.hash", "x-consistent-hash")
    channel.exchange_declare(f"{queue_name}.local", "x-local-random")
    both = {"hash-header": "h", "hash-property": "message_id"}
    refused = [
        lambda one: one.queue_bind(queue_name, f"{queue_name}.hash", "0"),
        lambda one: one.queue_bind(queue_name, f"{queue_name}.hash", "heavy"),
        lambda one: one.queue_bind(queue_name, f"{queue_name}.local", ""),
        lambda one: one.exchange_declare(f"{queue_name}.both", "x-consistent-hash", arguments=both),
        lambda one: one.exchange_declare(
            f"{queue_name}.both", "x-consistent-hash", arguments={"hash-property": "app_id"}
        ),
        lambda one: one.exchange_declare(f"{queue_name}.both", "x-delayed-message"),
    ]
    with broker.connect() as connection:
        for ask in refused:
            with pytest.raises(ChannelClosedByBroker, match=r"\(406, ") as caught:
                ask(connection.channel())
            assert caught.value.reply_text.startswith("PRECONDITION_FAILED - ")
    for word in ("hash", "local"):
        channel.exchange_delete(f"{queue_name}.{word}")
