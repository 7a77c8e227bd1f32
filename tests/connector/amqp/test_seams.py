"""Where the parts of the source meet: odd messages, changed options, other consumers, triggers."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pika
import pyarrow as pa
import pytest

from connector.amqp.query import Died, Query, Queue, receiver_of
from connector.amqp.rabbitmq import OneRabbitMQ
from pyspark_warren import errors
from pyspark_warren.options.options import parse_options
from pyspark_warren.source import QueryStreamReader
from pyspark_warren.spool.driver import SpoolDriver
from pyspark_warren.spool.lanes import Lane
from pyspark_warren.spool.reading import SpoolReading
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.live, pytest.mark.slow]


def bodies(query: Query) -> list[bytes]:
    """What the sink has, in order."""
    return [body for number in range(query.commits) for body, _ in query.sink[number]]


def wait_for_deliveries(lane: Lane, count: int) -> None:
    """Wait until rows and messages that were recognised are that many."""
    assert lane.wait(lambda: lane.end + lane.recognised == count, 20)


def wait_for_ready(queue: Queue, count: int) -> None:
    """Wait until the queue has so many messages ready; what a client returns is so a bit later."""
    deadline = time.monotonic() + PATIENCE_S
    while queue.ready() != count and time.monotonic() < deadline:
        time.sleep(0.1)
    assert queue.ready() == count


def test_once_ends_while_messages_keep_coming(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """A trigger that reads what is ready does not wait for a moment without a new message."""
    queue = Queue(rabbitmq)
    queue.publish(20)
    stopped = threading.Event()

    def publish() -> None:
        with rabbitmq.connect() as connection:
            channel = connection.channel()
            for number in range(10_000):
                channel.basic_publish("", queue.name, b"more %d" % number)
                connection.process_data_events(0)
                if stopped.wait(0.02):
                    return

    with Query(queue, tmp_path) as query:
        thread = threading.Thread(target=publish)
        thread.start()
        try:
            for _ in range(2):
                began = time.monotonic()
                query.run(None, "once")
                assert time.monotonic() - began < PATIENCE_S
        finally:
            stopped.set()
            thread.join()
        assert len(bodies(query)) >= 20


def test_an_empty_queue_leaves_one_spool(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    queue = Queue(rabbitmq)
    with Query(queue, tmp_path) as query:
        for _ in range(2):
            query.run(None, "once")
            query.run(10, "available")
        query.stop()
        assert len(list((tmp_path / "spool").iterdir())) == 1
        assert len(query.offsets) == 1
        queue.publish(3)
        query.finish()


def test_a_consumer_that_gets_nothing_is_told_why(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """Another one is the queue's single active consumer, and stands still."""
    queue = Queue(rabbitmq)
    queue.delete()
    with rabbitmq.connect() as connection:
        channel = connection.channel()
        channel.queue_declare(
            queue.name, durable=True, arguments={"x-single-active-consumer": True}
        )
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(queue.name, lambda *_: None)
        connection.process_data_events(0)
        queue.publish(5)
        with Query(queue, tmp_path, requestTimeout="15s") as query:
            with pytest.raises(errors.BrokerUnavailableError, match="4 messages ready"):
                query.run(10)


def test_odd_messages(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    queue = Queue(rabbitmq, "classic")
    sizes = [0, 1, 7 << 20, 0, 131_064, 131_065, 7 << 20]
    with rabbitmq.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("odd", "fanout")
        channel.queue_bind(queue.name, "odd")
        for number, size in enumerate(sizes):
            queue.bodies.append(bytes([number]) * size)
            known = pika.BasicProperties(message_id=str(number))
            key = b"\xff" * 255  # no UTF-8
            channel.basic_publish("odd", key, queue.bodies[-1], known)  # type: ignore[arg-type]
    with Query(queue, tmp_path) as query:
        query.dies("in_write", 1, 3)
        query.stop()
        for _ in range(2):
            query.run(3)
            query.stop()
        assert bodies(query) == queue.bodies


def test_a_delivery_limit_drops_no_row_of_the_spool(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    """The broker drops what was returned four times; the batches have it."""
    queue = Queue(rabbitmq)
    queue.delete()
    with rabbitmq.connect() as connection:
        connection.channel().queue_declare(
            queue.name,
            durable=True,
            arguments={"x-queue-type": "quorum", "x-delivery-limit": 3},
        )
    queue.publish(30)
    with Query(queue, tmp_path) as query:
        for life in range(4):
            # the first one gives the reader a name
            query.dies("latest", 0 if life else 1, 10)
            wait_for_deliveries(receiver_of(query.driver), 60 if life else 30)
            os.kill(query.pid, signal.SIGKILL)
            query.stop()
        wait_for_ready(queue, 0)
        query.finish(10)


@pytest.mark.parametrize(("ids", "rows"), [(True, 2), (False, 1)], ids=["message_id", "none"])
def test_an_equal_message_that_was_looked_at(
    rabbitmq: OneRabbitMQ, tmp_path: Path, ids: bool, rows: int
) -> None:
    """Without an id it is taken for the row that it equals: the manual says so."""
    queue = Queue(rabbitmq)
    with Query(queue, tmp_path) as query, rabbitmq.connect() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(2):
            known = pika.BasicProperties(message_id=str(number) if ids else None)
            channel.basic_publish("", queue.name, b"tick", known)
            if number:
                looked_at, _, _ = channel.basic_get(queue.name)
                channel.basic_nack(looked_at.delivery_tag, requeue=True)
                wait_for_ready(queue, 1)  # a query of what is available reads no more than that
            query.run(10)
            query.stop()
        assert bodies(query) == [b"tick"] * rows
        queue.check_empty()


@pytest.mark.long
def test_the_mode_of_acknowledgement_and_the_consumers_change(
    rabbitmq: OneRabbitMQ, tmp_path: Path
) -> None:
    queue = Queue(rabbitmq, ids=False)
    with Query(queue, tmp_path) as query:
        for mode, receivers, prefetch in (
            ("spool", "1", "50"),
            ("commit", "3", "7"),
            ("spool", "2", "1000"),
            ("commit", "1", "1"),
        ):
            query.given |= {"ackMode": mode, "receivers": receivers, "prefetch": prefetch}
            queue.publish(40)
            query.die_at = ("written", 2)
            try:
                query.run(15)
            except Died:
                pass
            query.stop()
        query.finish(15)


def test_a_queue_is_declared_again_under_the_query(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    queue = Queue(rabbitmq)
    queue.publish(30)
    with Query(queue, tmp_path) as query:
        query.dies("written", 1, 10)
        query.stop()
        queue.delete()
        with rabbitmq.connect() as connection:
            connection.channel().queue_declare(queue.name, durable=True)
        queue.publish(5)
        query.finish(10)


def test_the_spool_is_moved(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    queue = Queue(rabbitmq)
    queue.publish(30)
    with Query(queue, tmp_path) as query:
        query.run(10)
        query.stop()
        old = query.given["spoolLocation"]
        query.given["spoolLocation"] = str(tmp_path / "other")
        queue.publish(3)
        with pytest.raises(errors.SpoolLostError, match="nothing of reader"):
            query.run(10)
        query.given["spoolLocation"] = old
        query.finish(10)


def test_a_spool_that_was_removed_before_its_first_row_was_read(
    rabbitmq: OneRabbitMQ, tmp_path: Path
) -> None:
    """The messages are acknowledged, and no offset names a row: they were lost without a word."""
    queue = Queue(rabbitmq)
    queue.publish(20)
    with Query(queue, tmp_path, ackMode="spool") as query:
        query.dies("latest", 1, 10)
        query.stop()
        assert [each.row for each in query.offsets[-1][1].queues.values()] == [0]
        queue.check_empty()
        shutil.move(tmp_path / "spool", tmp_path / "away")
        with pytest.raises(errors.SpoolLostError, match="nothing of reader"):
            query.run(10)
        query.stop()
        shutil.rmtree(tmp_path / "spool", ignore_errors=True)
        shutil.move(tmp_path / "away", tmp_path / "spool")
        query.finish(10)


def test_an_older_copy_of_the_checkpoint_does_not_disturb_the_query(
    rabbitmq: OneRabbitMQ, tmp_path: Path
) -> None:
    queue = Queue(rabbitmq)
    queue.publish(90)
    with Query(queue, tmp_path) as query, Query(queue, tmp_path) as copy:
        query.run(30)
        copy.offsets, copy.commits = query.offsets[:2], 2
        copy.sink = {number: query.sink[number] for number in range(2)}
        for committed in (2, 1):  # the second time Spark's first call is for a batch it has begun
            copy.commits = committed
            with pytest.raises(errors.CheckpointBehindError, match="older copy"):
                copy.run(30)
        queue.publish(10)
        lane = receiver_of(query.driver)
        assert lane.wait(lambda: lane.end == 100, PATIENCE_S)
        query.finish(30)


def test_two_drivers_on_one_checkpoint(rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    queue = Queue(rabbitmq)
    queue.publish(30)
    with Query(queue, tmp_path) as first:
        first.dies("written", 1, 10)
        driver = first.driver
        assert driver is not None
        first.abandon()
        first.run(10)
        with pytest.raises(errors.FencedError, match="stop one of them"):
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                queue.publish(1)
                driver.latest(first.offsets[1][1], 10)
        first.finish(10)


def test_a_receiver_that_stands_still_fails_available_now(
    rabbitmq: OneRabbitMQ, tmp_path: Path
) -> None:
    """The limit is short for the wait alone: what comes before it may be slow on a busy machine."""
    queue = Queue(rabbitmq)
    queue.publish(30)
    with Query(queue, tmp_path) as query:
        query.run(30)
        os.kill(query.pid, signal.SIGSTOP)
        try:
            queue.publish(1)
            driver = query.driver
            assert driver is not None
            driver.prepare_available_now()
            (one,) = driver.queues.values()
            one._target = 31
            one._options = replace(one._options, request_timeout_ms=3_000)
            with pytest.raises(errors.BrokerUnavailableError, match="receiver"):
                driver.latest(query.offsets[-1][1], 30)
        finally:
            os.kill(query.pid, signal.SIGCONT)
        query.stop()
        query.finish()


def test_tasks_do_not_get_the_password(tmp_path: Path) -> None:
    options = parse_options(
        {"broker": "amqp", "queue": "q", "password": "s3cret", "spoolLocation": str(tmp_path)},
        "read",
        "stream",
    )
    data = pickle.dumps(QueryStreamReader(SpoolReading(options, pa.schema([]))))
    assert b"s3cret" not in data and str(tmp_path).encode() in data


def test_tasks_do_not_get_the_client_s_secret(tmp_path: Path) -> None:
    given = {"broker": "amqp", "queue": "q", "spoolLocation": str(tmp_path)}
    given |= {"oauthTokenEndpoint": "https://login.example.com/token", "oauthClientId": "c"}
    options = parse_options({**given, "oauthClientSecret": "s3cret"}, "read", "stream")
    data = pickle.dumps(QueryStreamReader(SpoolReading(options, pa.schema([]))))
    assert b"s3cret" not in data and str(tmp_path).encode() in data


def test_what_the_source_shows_of_itself_has_no_password(
    rabbitmq: OneRabbitMQ, tmp_path: Path
) -> None:
    """Neither the receiver's arguments nor its environment, which `ps` shows."""
    with rabbitmq.connect() as connection:
        channel = connection.channel()
        channel.queue_declare("secret", durable=True)
    password = "s3cret-never-shown"
    rabbitmq.control("add_user", "shown", password)
    rabbitmq.control("set_permissions", "shown", ".*", ".*", ".*")
    options = parse_options(
        {
            "broker": "amqp",
            "hosts": rabbitmq.hosts,
            "queue": "secret",
            "user": "shown",
            "password": password,
            "spoolLocation": str(tmp_path),
        },
        "read",
        "stream",
    )
    driver = SpoolDriver(options, mint=lambda: "spark-1")
    try:
        driver.latest(driver.latest(driver.initial(), 10), 10)
        for name in ("cmdline", "environ"):
            data = Path(f"/proc/{receiver_of(driver).pid}/{name}").read_bytes()
            assert data and password.encode() not in data
    finally:
        driver.close()
