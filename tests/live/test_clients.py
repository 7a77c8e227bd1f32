"""aio-pika, kombu and amqp-tools doing their ordinary work."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess

import aio_pika
import kombu
import pytest

from live.conftest import eventually
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.live


def test_aio_pika_publishes_consumes_and_calls(broker, queue_name):
    async def work():
        connection = await aio_pika.connect_robust(broker.uri)
        async with connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=10)
            exchange = await channel.declare_exchange(
                queue_name + ".x", aio_pika.ExchangeType.TOPIC, auto_delete=True
            )
            queue = await channel.declare_queue(queue_name, durable=True)
            await queue.bind(exchange, "a.#")
            await asyncio.gather(
                *(
                    exchange.publish(aio_pika.Message(b"%d" % i, headers={"i": i}), f"a.{i}")
                    for i in range(200)
                )
            )
            seen = []
            async with queue.iterator(timeout=PATIENCE_S) as messages:
                async for message in messages:
                    async with message.process():
                        seen.append((message.body, message.headers["i"], message.routing_key))
                    if len(seen) == 200:
                        break
            assert sorted(i for _, i, _ in seen) == list(range(200))
            assert all(body == b"%d" % i and key == f"a.{i}" for body, i, key in seen)

            from aio_pika.patterns import RPC

            rpc = await RPC.create(channel)

            async def multiply(*, x: int, y: int) -> int:
                return x * y

            name = queue_name + ".rpc"
            await rpc.register(name, multiply, auto_delete=True)
            assert await rpc.call(name, kwargs={"x": 6, "y": 7}) == 42
            await rpc.close()

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_aio_pika_returns_what_nobody_wants(broker):
    async def work():
        connection = await aio_pika.connect(broker.uri)
        async with connection:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            with pytest.raises(aio_pika.exceptions.DeliveryError):
                await channel.default_exchange.publish(
                    aio_pika.Message(b"x"), "no such queue at all", mandatory=True
                )

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_aio_pika_transaction(broker, queue_name):
    async def work():
        connection = await aio_pika.connect(broker.uri)
        async with connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue(queue_name, durable=True)
            transaction = channel.transaction()
            await transaction.select()
            await channel.default_exchange.publish(aio_pika.Message(b"dropped"), queue_name)
            await transaction.rollback()
            await channel.default_exchange.publish(aio_pika.Message(b"kept"), queue_name)
            await transaction.commit()
            message = await queue.get(timeout=PATIENCE_S)
            assert message.body == b"kept"
            await message.ack()
            assert await queue.get(fail=False) is None

    asyncio.run(asyncio.wait_for(work(), PATIENCE_S))


def test_kombu_simple_queue_and_consumer(broker, queue_name):
    with kombu.Connection(broker.uri) as connection:
        simple = connection.SimpleQueue(queue_name)
        for i in range(10):
            simple.put({"n": i}, serializer="json")
        first = simple.get(timeout=PATIENCE_S)
        assert first.payload == {"n": 0}
        first.requeue()
        got = [_acked(simple.get(timeout=PATIENCE_S))["n"] for _ in range(10)]
        assert sorted(got) == list(range(10)), got  # the client has prefetched what came later
        simple.close()

        seen = []
        exchange = kombu.Exchange(queue_name + ".x", type="direct", auto_delete=True)
        queue = kombu.Queue(
            queue_name + ".q",
            exchange,
            routing_key="k",
            auto_delete=True,
            queue_arguments={"x-expires": 60_000},
        )

        def on_message(body, message):
            seen.append(body)
            message.ack()

        with connection.Consumer(queue, callbacks=[on_message], prefetch_count=5):
            producer = connection.Producer(serializer="json")
            for i in range(20):
                producer.publish(
                    {"i": i}, exchange=exchange, routing_key="k", declare=[queue], retry=True
                )
            eventually(lambda: _drain(connection) or len(seen) == 20, "20 messages")
        assert [body["i"] for body in seen] == list(range(20))


def _acked(message):
    message.ack()
    return message.payload


def _drain(connection):
    try:
        connection.drain_events(timeout=0.2)
    except TimeoutError:
        pass


def tool(name, *arguments, **options):
    return subprocess.run(
        [name, *arguments], capture_output=True, timeout=PATIENCE_S, check=False, **options
    )


@pytest.fixture(scope="module")
def amqp_tools():
    """Debian's amqp-tools; installed by `build.py test` where it may."""
    if shutil.which("amqp-publish") is None:
        if os.environ.get("CI") or os.environ.get("WARREN_STRICT"):
            pytest.fail("amqp-tools is not installed: apt-get install amqp-tools")
        pytest.skip("amqp-tools is not installed: apt-get install amqp-tools")


def test_amqp_tools(broker, queue_name, amqp_tools):
    url = ("--url", broker.uri)
    assert tool("amqp-declare-queue", *url, "-d", "-q", queue_name).returncode == 0
    for i in range(3):
        done = tool("amqp-publish", *url, "-r", queue_name, "-p", "-b", f"body {i}")
        assert done.returncode == 0, done.stderr
    got = tool("amqp-get", *url, "-q", queue_name)
    assert got.stdout == b"body 0", got
    consumed = tool("amqp-consume", *url, "-q", queue_name, "-c", "2", "cat")
    assert consumed.stdout == b"body 1body 2", consumed
    assert tool("amqp-get", *url, "-q", queue_name).returncode == 2
    deleted = tool("amqp-delete-queue", *url, "-q", queue_name)
    assert deleted.stdout.strip() == b"0", deleted
