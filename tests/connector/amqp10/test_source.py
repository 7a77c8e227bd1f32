"""The source at AMQP 1.0 brokers: each message in one row, with whatever fails on the way."""

from __future__ import annotations

import os
import random
import signal
import threading
from functools import partial
from pathlib import Path

import pytest

from connector.amqp.query import Query, has_receiver, receiver_of, run_until_it_dies
from connector.amqp.relay import Relay
from connector.amqp10.brokers import Artemis, Broker10, Queue10, RabbitMQ10, Warren10
from pyspark_warren import errors
from pyspark_warren.amqp.detect import detect
from pyspark_warren.options.options import parse_options
from pyspark_warren.spool.lanes import Lane
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.live, pytest.mark.slow]


class Query10(Query):
    """A query over AMQP 1.0."""

    def __init__(self, queue: Queue10, directory: Path, **more: str) -> None:
        super().__init__(queue, directory, **{"broker": "amqp10", **more})  # type: ignore[arg-type]


def lane_of(query: Query) -> Lane:
    """The receiver's lane in the query's driver."""
    return receiver_of(query.driver)


def _back(relay: Relay, made: int, lane: Lane) -> bool:
    return relay.made > made and lane.down_s() == 0


@pytest.mark.parametrize("ids", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_queue_is_read_once_and_acknowledged(broker: Broker10, tmp_path: Path, ids: bool) -> None:
    queue = Queue10(broker, ids)
    queue.publish(150)
    with Query10(queue, tmp_path) as query:
        query.run(100)
        query.stop()
        query.check()
        sizes = [len(rows) for rows in query.sink.values()]
        assert sizes[0] == 0 and sum(sizes) == 150 and max(sizes) <= 100, sizes
        queue.check_empty()
        queue.publish(50)
        query.dies("commit_log", 1, 20)  # its receiver gives back what is not acknowledged
        query.stop()
        query.finish(100)


def test_more_messages_than_the_prefetch(broker: Broker10, tmp_path: Path) -> None:
    queue = Queue10(broker)
    queue.publish(90)
    with Query10(queue, tmp_path, prefetch="20", receivers="2") as query:
        query.finish(15)


def test_once_reads_what_was_ready(artemis: Artemis, tmp_path: Path) -> None:
    queue = Queue10(artemis)
    queue.publish(70)
    with Query10(queue, tmp_path) as query:
        query.run(None, "once")
        query.run(None, "once")
        assert sum(map(len, query.sink.values())) == 70
        query.finish()


@pytest.mark.parametrize("mode", ["commit", pytest.param("spool", marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["artemis", "warren"])
def test_drivers_that_die_anywhere(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, mode: str
) -> None:
    rng = random.Random(f"{name} {mode}")
    queue = Queue10(request.getfixturevalue(name))
    with Query10(queue, tmp_path, ackMode=mode) as query:
        for _ in range(4):
            queue.publish(rng.randint(1, 150))
            run_until_it_dies(query, rng, 60, rng.choice(("available", "once")))
        query.finish(60)


def test_a_receiver_that_is_killed_is_started_again(broker: Broker10, tmp_path: Path) -> None:
    queue = Queue10(broker)
    queue.publish(600)
    with Query10(queue, tmp_path, prefetch="100") as query:
        ended = threading.Event()

        def kill() -> None:
            rng = random.Random(broker.name)
            for _ in range(3):
                if ended.wait(rng.uniform(0.4, 1.2)):
                    return
                if has_receiver(query.driver):
                    os.kill(query.pid, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            query.run(200)
        finally:
            ended.set()
            killer.join()
        query.finish(300)


@pytest.mark.parametrize(
    "name", ["artemis", pytest.param("qpid", marks=pytest.mark.long), "warren"]
)
def test_the_connection_is_cut_again_and_again(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker: Broker10 = request.getfixturevalue(name)
    queue = Queue10(broker)
    queue.publish(400)
    with Relay(int(broker.hosts.rpartition(":")[2])) as relay:
        given = {"hosts": relay.hosts, "prefetch": "100", "receivers": "2"}
        with Query10(queue, tmp_path, **given) as query:
            for _ in range(2):
                query.dies("commit_log", 1, 40)
                lane = lane_of(query)
                made = relay.made
                relay.cut()
                assert lane.wait(partial(_back, relay, made, lane), PATIENCE_S)
            query.finish(100)


@pytest.mark.parametrize("ids", [True, pytest.param(False, marks=pytest.mark.long)])
def test_the_broker_is_killed_and_starts_again(artemis: Artemis, tmp_path: Path, ids: bool) -> None:
    """Artemis then delivers what was delivered before, unmarked: see `amqp10.session`."""
    queue = Queue10(artemis, ids)
    queue.publish(300)
    with Query10(queue, tmp_path) as query:
        query.dies("commit_log", 2, 100)
        lane = lane_of(query)
        artemis.kill()
        assert lane.wait(lambda: lane.down_s() > 0, PATIENCE_S)
        artemis.restart()
        assert lane.wait(lambda: lane.down_s() == 0, PATIENCE_S), lane.down_text
        queue.publish(100)
        query.finish(100)


def test_equal_messages_without_ids_are_rows_each(artemis: Artemis, tmp_path: Path) -> None:
    """Also over restarts of the receiver, where Artemis marks nothing that it has kept."""
    queue = Queue10(artemis, ids=False)
    with Query10(queue, tmp_path) as query:
        for _ in range(3):
            queue.publish_equal(b"ping", 2)
            query.run(100)
            query.stop()
        assert sum(len(rows) for rows in query.sink.values()) == 6
    queue.check_empty()


def test_rejected_messages_are_dead_letters_with_a_reason(artemis: Artemis, tmp_path: Path) -> None:
    queue = Queue10(artemis)
    queue.publish(10)
    given = {"onBatchFailure": "reject", "dropRejected": "true", "batchTriesMax": "1"}
    with Query10(queue, tmp_path, **given) as query:
        query.dies("written", 1, 10)
        query.sink.clear()  # it has taken nothing of the batch
        query.run(10)
        query.run(10)
        query.stop()
    queue.check_empty()
    assert artemis.count("DLQ." + queue.name)[0] == 10


def test_a_queue_that_is_not_there_or_deleted_is_named(
    artemis: Artemis, warren: Warren10, tmp_path: Path
) -> None:
    for broker in (artemis, warren):
        queue = Queue10(broker)
        queue.publish(10)
        with Query10(queue, tmp_path / broker.name) as query:
            query.run(100)
            queue.delete()
            with pytest.raises(errors.BrokerRefusedError, match="not-found"):
                lane_of(query).wait(lambda: False, PATIENCE_S)
            query.check()  # what the spool has stays readable
        with Query10(queue, tmp_path / f"{broker.name}-other") as query:
            with pytest.raises(errors.BrokerRefusedError, match="not-found"):
                query.run(100)


def test_a_wrong_password_is_refused_at_once(broker: Broker10, tmp_path: Path) -> None:
    with Query10(Queue10(broker), tmp_path, password="wrong") as query:
        with pytest.raises(errors.BrokerRefusedError, match="refuses the login"):
            query.run(100)


def test_another_protocol_under_one_checkpoint_is_named(
    rabbitmq: RabbitMQ10, tmp_path: Path
) -> None:
    queue = Queue10(rabbitmq)
    queue.publish(60)
    with Query(queue, tmp_path) as query:  # type: ignore[arg-type]
        for now, before in (("amqp10", "amqp"), ("amqp", "amqp10")):
            query.given["broker"] = before
            query.dies("offset_log", 1, 20)
            query.stop()
            query.given["broker"] = now
            with pytest.raises(errors.CheckpointError, match=f"filled with broker={before}"):
                query.run(20)
            query.given["broker"] = before
            query.finish(20)
            query.given["spoolLocation"] += "-2"
            query.offsets, query.commits, query.sink = [], 0, {}
            queue.bodies.clear()
            queue.publish(60)


def test_a_broker_of_amqp_10_alone_is_found(broker: Broker10) -> None:
    given = parse_options({"hosts": broker.hosts, "queue": "q"}, "read", "stream")
    wanted = {"warren": "warren", "rabbitmq": "amqp"}.get(broker.name, "amqp10")
    assert detect(given).broker == wanted
