"""Receiver, spool and driver against a real RabbitMQ, with whatever fails on the way."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from connector.amqp.query import Query, Queue, has_receiver, receiver_of, run_until_it_dies
from connector.amqp.rabbitmq import OneRabbitMQ
from connector.amqp.relay import Relay
from pyspark_warren import errors
from pyspark_warren.spool.lanes import Lane
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.live, pytest.mark.slow]

BOTH = pytest.mark.parametrize("mode", ["commit", "spool"])
SPOOL_IS_LONG = pytest.mark.parametrize(
    "mode", ["commit", pytest.param("spool", marks=pytest.mark.long)]
)


@pytest.fixture
def queue(rabbitmq: OneRabbitMQ) -> Queue:
    """A queue of the test's own."""
    return Queue(rabbitmq)


def lane_of(query: Query) -> Lane:
    """The receiver's lane in the query's driver."""
    return receiver_of(query.driver)


def _has_recognised(lane: Lane, messages: int) -> bool:
    return lane.recognised >= messages


def _is_another(lane: Lane, killed: int) -> bool:
    return lane.pid != killed and lane.down_s() == 0


def _back(relay: Relay, made: int, lane: Lane) -> bool:
    return relay.made > made and lane.down_s() == 0


def test_a_queue_is_read_once_and_acknowledged(queue: Queue, tmp_path: Path) -> None:
    queue.publish(250)
    with Query(queue, tmp_path) as query:
        query.run(100)
        query.stop()
        query.check()
        sizes = [len(rows) for rows in query.sink.values()]
        assert sizes[0] == 0 and sum(sizes) == 250 and max(sizes) <= 100, sizes
        queue.check_empty()


def test_what_a_filter_leaves_out_is_acknowledged_with_its_batch(
    queue: Queue, tmp_path: Path
) -> None:
    queue.publish(60)
    given = {"filter": "p.message_id LIKE '_5'", "filterUnmatched": "settle"}
    with Query(queue, tmp_path, **given) as query:
        query.dies("written", 0, 40)
        query.run(40)
        query.stop()
        found = sorted(body for rows in query.sink.values() for body, _ in rows)
        assert found == [b"message %06d" % number for number in range(15, 60, 10)]
        queue.check_empty()


@BOTH
def test_nothing_is_acknowledged_before_its_time(queue: Queue, tmp_path: Path, mode: str) -> None:
    """commit: after the commit log; spool: when it is in the spool; never before the reader's name
    is in the checkpoint."""
    queue.publish(50)
    with Query(queue, tmp_path, ackMode=mode) as query:
        query.dies("latest", 0, None, "once")
        query.stop()
        assert queue.ready() == 50
        # the first batch has only the reader's name
        query.dies("commit_log", 1, 50)
        query.stop()
        assert queue.ready() == (50 if mode == "commit" else 0)
        query.finish()


@SPOOL_IS_LONG
def test_drivers_that_die_anywhere(rabbitmq: OneRabbitMQ, tmp_path: Path, mode: str) -> None:
    """A few random lives; `build.py crashes` draws them with Spark."""
    rng = random.Random(mode)
    queue = Queue(rabbitmq, "classic" if mode == "spool" else "quorum", ids=mode == "spool")
    with Query(queue, tmp_path, ackMode=mode) as query:
        for _ in range(4):
            queue.publish(rng.randint(1, 150))
            run_until_it_dies(query, rng, 60, rng.choice(("available", "once")))
        query.finish(60)


@SPOOL_IS_LONG
def test_a_receiver_that_is_killed_is_started_again(
    queue: Queue, tmp_path: Path, mode: str
) -> None:
    queue.publish(1500)
    with Query(queue, tmp_path, ackMode=mode, prefetch="200") as query:
        ended = threading.Event()

        def kill() -> None:
            rng = random.Random(mode)
            for _ in range(3):
                if ended.wait(rng.uniform(0.4, 1.2)):
                    return
                if has_receiver(query.driver):
                    os.kill(query.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            query.run(300)
        finally:
            ended.set()
            killer.join()
        query.finish(300)


def test_a_receiver_that_stood_still_does_nothing_after_its_successor(
    queue: Queue, tmp_path: Path
) -> None:
    queue.publish(400)
    with Query(queue, tmp_path, ackMode="spool", prefetch="100") as query:
        query.dies("offset_log", 1, 50)
        frozen = query.pid
        os.kill(frozen, signal.SIGSTOP)
        query.abandon()
        try:
            query.run(50)
        finally:
            os.kill(frozen, signal.SIGCONT)
        queue.publish(100)
        query.stop()
        old = receiver_of(query.abandoned[0])
        deadline = time.monotonic() + PATIENCE_S
        with pytest.raises(errors.FencedError, match="taken over"):
            while time.monotonic() < deadline:
                old.wait(lambda: False, 0.2)
        query.finish()


def test_the_broker_is_killed_and_starts_again(
    queue: Queue, rabbitmq: OneRabbitMQ, tmp_path: Path
) -> None:
    queue.publish(500)
    with Query(queue, tmp_path) as query:
        query.dies("commit_log", 2, 100)
        lane = lane_of(query)
        rabbitmq.kill()
        assert lane.wait(lambda: lane.down_s() > 0, PATIENCE_S)
        rabbitmq.restart()
        assert lane.wait(lambda: lane.down_s() == 0, PATIENCE_S), lane.down_text
        queue.publish(100)
        query.finish(100)


@SPOOL_IS_LONG
def test_the_connection_is_cut_again_and_again(
    queue: Queue, rabbitmq: OneRabbitMQ, tmp_path: Path, mode: str
) -> None:
    queue.publish(600)
    with Relay(rabbitmq.port) as relay:
        given = {"hosts": relay.hosts, "ackMode": mode, "prefetch": "100", "receivers": "2"}
        with Query(queue, tmp_path, **given) as query:
            for _ in range(3):
                query.dies("commit_log", 1, 40)
                lane = lane_of(query)
                made = relay.made
                relay.cut()
                assert lane.wait(partial(_back, relay, made, lane), 20)
            query.finish(100)


def test_a_queue_that_is_deleted_is_named(queue: Queue, tmp_path: Path) -> None:
    queue.publish(10)
    with Query(queue, tmp_path) as query:
        query.run(100)
        queue.delete()
        with pytest.raises(errors.BrokerRefusedError, match=f"no queue '{queue.name}'"):
            lane_of(query).wait(lambda: False, 20)
        query.check()  # what the spool has stays readable
    with Query(queue, tmp_path / "other") as query:
        with pytest.raises(errors.BrokerRefusedError, match=f"no queue '{queue.name}'"):
            query.run(100)


def test_a_vhost_that_is_closed_to_the_user_is_refused_at_once(
    queue: Queue, tmp_path: Path
) -> None:
    with Query(queue, tmp_path, password="wrong") as query:
        with pytest.raises(errors.BrokerRefusedError, match="refuses the login"):
            query.run(100)


def test_an_exclusive_consumer_elsewhere_is_named(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    queue = Queue(rabbitmq, "classic")
    queue.publish(10)
    with rabbitmq.connect() as connection, Query(queue, tmp_path) as query:
        channel = connection.channel()
        channel.basic_consume(queue.name, lambda *_: None, exclusive=True)
        with pytest.raises(errors.BrokerRefusedError, match="exclusive"):
            query.run(100)


@pytest.mark.parametrize("count", [0, 20])
def test_a_stream_is_refused_before_anything_is_read(
    rabbitmq: OneRabbitMQ, tmp_path: Path, count: int
) -> None:
    """A stream would be read from its end: an empty one is refused like a full one, at once."""
    queue = Queue(rabbitmq, "stream")
    queue.publish(count)
    with Query(queue, tmp_path) as query:
        for attempt in range(2):  # a restart from the checkpoint says the same
            with pytest.raises(errors.UnsupportedError, match="a stream .*give startingOffset"):
                query.run(100)
            assert lane_of(query).end == 0, attempt
        query.stop()
        assert not any(query.sink.values())
        assert not list(tmp_path.rglob("*.arrow"))


def test_a_message_near_its_delivery_limit_is_warned_of(
    queue: Queue, rabbitmq: OneRabbitMQ, tmp_path: Path
) -> None:
    queue.publish(1)
    returned = 0
    while returned < 4:
        # A consumer that ends; a basic.nack counts before RabbitMQ 4.3 only.
        with rabbitmq.connect() as connection:
            method, _, _ = connection.channel().basic_get(queue.name)
            returned += method is not None
    with Query(queue, tmp_path, deliveryLimit="5") as query:
        query.run(100)
        lane = lane_of(query)
        warned = lane.wait(lambda: "deliveryLimit" in lane.warning, PATIENCE_S)
        assert warned, (lane.end, lane.warning, query.offsets)
        assert "returned 4 times" in lane.warning
        query.finish()


def test_a_spool_that_cannot_be_written(queue: Queue, tmp_path: Path) -> None:
    queue.publish(10)
    (tmp_path / "file").write_text("")
    with Query(queue, tmp_path, spoolLocation=str(tmp_path / "file/spool")) as query:
        with pytest.raises(errors.SpoolError, match="check that spoolLocation"):
            query.run(100)
        query.stop()
        query.given["spoolLocation"] = str(tmp_path / "spool")
        query.finish()


@pytest.fixture
def impatient(rabbitmq: OneRabbitMQ) -> Iterator[OneRabbitMQ]:
    """The node, with a consumer timeout of two seconds for new channels."""
    old = rabbitmq.control("eval", "application:get_env(rabbit, consumer_timeout).").strip()
    old = old.removeprefix("{ok,").removesuffix("}")
    for name, value in (("consumer_timeout", "2000"), ("channel_tick_interval", "500")):
        rabbitmq.control("eval", f"application:set_env(rabbit, {name}, {value}).")
    yield rabbitmq
    for name, value in (("consumer_timeout", old), ("channel_tick_interval", "60000")):
        rabbitmq.control("eval", f"application:set_env(rabbit, {name}, {value}).")


@pytest.mark.long
def test_the_broker_takes_back_what_is_not_acknowledged_in_time(
    impatient: OneRabbitMQ, tmp_path: Path
) -> None:
    queue = Queue(impatient)
    queue.publish(100)
    with Query(queue, tmp_path, consumerTimeout="2s") as query:
        query.dies("offset_log", 1, 50)
        lane = lane_of(query)
        assert lane.wait(lambda: "consumerTimeout" in lane.warning, PATIENCE_S)
        assert lane.wait(lambda: lane.recognised >= 100, PATIENCE_S), lane.down_text
        query.finish(50)


@pytest.mark.long
def test_a_receiver_is_killed_while_the_broker_takes_back_a_batch(
    impatient: OneRabbitMQ, tmp_path: Path
) -> None:
    """A batch under way for longer than the consumer timeout is read once, and acknowledged."""
    queue = Queue(impatient)
    queue.publish(100)
    with Query(queue, tmp_path, consumerTimeout="2s") as query:
        query.dies("offset_log", 1, 50)
        lane = lane_of(query)
        for _ in range(2):
            again = lane.recognised + 100
            assert lane.wait(partial(_has_recognised, lane, again), PATIENCE_S), lane.down_text
            killed = lane.pid
            os.kill(killed, signal.SIGKILL)
            assert lane.wait(partial(_is_another, lane, killed), PATIENCE_S), "not started again"
        query.finish(50)
