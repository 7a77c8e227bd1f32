"""The kind of broker is found out once, on the driver."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.ports import free_ports
from connector.amqp.rabbitmq import OneRabbitMQ
from connector.amqp.relay import Relay
from connector.amqp.test_connection import answering, named_at_last
from connector.amqp.test_publish import Declared
from pyspark_warren import errors
from pyspark_warren.amqp.detect import detect
from pyspark_warren.options.options import Options, parse_options
from tests.patience import PATIENCE_S, PROMPTLY_S
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


def given(hosts: str, where: str = "write", **more: str) -> Options:
    return parse_options({"hosts": hosts, "requestTimeout": "2m", **more}, where)


def test_what_a_broker_says_of_itself(rabbitmq: OneRabbitMQ, cluster: LocalCluster) -> None:
    assert detect(given(rabbitmq.hosts)).broker == "amqp"
    assert not detect(given(rabbitmq.hosts)).atomic_batch
    assert detect(given(cluster.hosts)).broker == "warren"
    assert detect(given(cluster.hosts)).atomic_batch
    assert detect(given(f"127.0.0.1:{free_ports(1)},{rabbitmq.hosts}")).broker == "amqp"
    assert detect(given("nowhere:1", broker="amqp")).broker == "amqp", "nobody is asked"


def test_an_option_of_the_other_kind_names_the_broker(
    rabbitmq: OneRabbitMQ, cluster: LocalCluster
) -> None:
    with pytest.raises(errors.OptionError) as caught:
        detect(given(rabbitmq.hosts, "read", queue="q", claimTtl="1m"))
    assert "claimTtl is for broker=warren" in str(caught.value)
    assert f"{rabbitmq.name} at {rabbitmq.hosts} (broker=amqp)" in str(caught.value)
    with pytest.raises(errors.OptionError, match="prefetch is for broker=amqp.*Warren at 127"):
        detect(given(cluster.hosts, "read", queue="q", prefetch="10"))


def test_a_process_asks_an_address_once(rabbitmq: OneRabbitMQ) -> None:
    with Relay(rabbitmq.port) as relay:
        for _ in range(3):
            assert detect(given(relay.hosts)).broker == "amqp"
        assert relay.made == 1


@pytest.mark.parametrize("protocol", [0, 2, 3])
def test_a_header_of_amqp_10_says_so(protocol: int) -> None:
    with answering(b"AMQP%c\x01\x00\x00" % protocol) as hosts:
        assert detect(given(hosts)).broker == "amqp10"


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x01\0\0\xff\xff\xff\xff"]
)
def test_something_else_is_refused_at_once(answer: bytes) -> None:
    begun = time.monotonic()
    with answering(answer) as hosts:
        with pytest.raises(errors.BrokerRefusedError, match=r"does not speak AMQP 0\.9\.1"):
            detect(given(hosts))
    assert time.monotonic() - begun < PROMPTLY_S


def test_nobody_answers() -> None:
    with pytest.raises(errors.BrokerUnavailableError, match="asking .* what broker it is"):
        detect(given(f"127.0.0.1:{free_ports(1)}", requestTimeout="500ms"))
    with answering(b"") as hosts:
        named_at_last(given(hosts), "without an answer", errors.BrokerUnavailableError, detect)


def _drip(made: socket.socket) -> None:
    """Send a large connection.start, a byte at a time."""
    with contextlib.suppress(OSError):
        for octet in b"\x01\0\0\0\x01\0\0" + bytes(60):
            made.sendall(bytes([octet]))
            time.sleep(0.2)


def _silent(made: socket.socket) -> None:
    with contextlib.suppress(OSError):
        made.settimeout(PATIENCE_S)
        while made.recv(100):
            pass


@pytest.mark.parametrize("serve", [_drip, _silent])
def test_an_answer_that_does_not_end(serve: Callable[[socket.socket], None]) -> None:
    """The limit is that of the question, not of each byte: other queries of the process wait."""
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                made = listening.accept()[0]
                threading.Thread(target=serve, args=(made,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    begun = time.monotonic()
    with listening, pytest.raises(errors.BrokerUnavailableError, match="in time: .* only with TLS"):
        detect(given(f"127.0.0.1:{listening.getsockname()[1]}", requestTimeout="1s"))
    assert time.monotonic() - begun < PROMPTLY_S


# ------------------------------------------------------------------ through Spark


@pytest.mark.spark
@pytest.mark.long
def test_spark_writes_to_rabbitmq(spark: Any, rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    queue = Declared(rabbitmq.connect)
    frame = spark.range(100).selectExpr("concat(id, ' ') AS body")
    frame.write.format("warren").mode("append").options(
        hosts=rabbitmq.hosts, routingKey=queue.name
    ).save()
    assert sorted(queue.ids_by_row()) == list(range(100))

    rows = tmp_path / "rows"
    rows.mkdir()
    log = len(rabbitmq.log())
    for number in range(3):
        (rows / f"{number}.json").write_text(
            "".join(
                json.dumps({"body": f"{n} x"}) + "\n" for n in range(number * 9, number * 9 + 9)
            )
        )
    query = (
        spark.readStream.schema("body string")
        .option("maxFilesPerTrigger", 1)
        .json(str(rows))
        .writeStream.format("warren")
        .options(hosts=rabbitmq.hosts, routingKey=queue.name)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = queue.ids_by_row()
    assert sorted(found) == list(range(27))
    assert {found[n][0] for n in (0, 9, 18)} == {f"{query.id}-{batch}-0-0" for batch in range(3)}
    asked = rabbitmq.log()[log:].count("client unexpectedly closed")
    assert asked <= 3, "not in each batch"


@pytest.mark.spark
def test_spark_is_told_what_is_wrong(spark: Any, rabbitmq: OneRabbitMQ, tmp_path: Path) -> None:
    frame = spark.range(10).selectExpr("concat(id, ' ') AS body")
    for more, says in (
        ({"routingKey": "nowhere"}, r"\[WARREN_NO_ROUTE\].*'nowhere'"),
        ({"routingKey": "q", "password": "wr0ng"}, r"\[WARREN_REFUSED\].*refuses the login"),
        ({"routingKey": "q", "atomicBatch": "true"}, r"\[WARREN_OPTION\].*RabbitMQ"),
    ):
        with pytest.raises(Exception, match=says) as caught:
            frame.write.format("warren").mode("append").options(hosts=rabbitmq.hosts, **more).save()
        assert "wr0ng" not in str(caught.value)
    with pytest.raises(Exception, match=r"\[WARREN_UNSUPPORTED\].*without taking them"):
        spark.read.format("warren").options(hosts=rabbitmq.hosts, queue="q").load().collect()


@pytest.mark.spark
def test_spark_finds_a_warren_cluster(spark: Any, cluster: LocalCluster) -> None:
    with cluster.connect() as connection:
        Admin(connection).queues.declare("found")
        spark.range(50).selectExpr("string(id) AS body").write.format("warren").mode(
            "append"
        ).options(hosts=cluster.hosts, routingKey="found").save()
        assert Admin(connection).queues.get("found").messages_ready == 50
    rows = spark.read.format("warren").options(hosts=cluster.hosts, queue="found").load()
    assert rows.count() == 50
