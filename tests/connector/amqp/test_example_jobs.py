"""The jobs in examples/, each by its command's function, in one Spark session."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sqlite3
import time
import uuid
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pika
import pytest

from connector.amqp.rabbitmq import OneRabbitMQ
from warren import Producer
from warren.admin import Admin
from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow, pytest.mark.long]

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
TASKS = "shop-tasks"
"""Celery declares it once in a process."""


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


@pytest.fixture
def cluster(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> LocalCluster:
    """The node that the examples connect to, without messages: a test may be run again."""
    monkeypatch.setenv("WARREN_URI", cluster.uri)
    with cluster.connect() as connection:
        admin = Admin(connection)
        for queue in admin.queues.list():
            if queue.name == TASKS:
                admin.queues.purge(queue.name)
            else:
                admin.queues.delete(queue.name)
    return cluster


def example(name: str) -> ModuleType:
    """The module examples/name/name.py."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / name / f"{name}.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def orders_in(directory: Path) -> list[tuple[int, str, int]]:
    with sqlite3.connect(directory / "orders.sqlite") as connection:
        return connection.execute('SELECT * FROM orders ORDER BY "order"').fetchall()


def test_etl_has_each_order_once_when_a_batch_is_run_again(
    spark: Any, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    etl = example("etl")
    etl.publish(cluster.uri, 500)
    wanted = [(number, f"c{number % 7}", number * 10) for number in range(500)]
    plain = etl.write_sql

    def written_and_killed(orders: Any, run: str, batch: int, database: str) -> None:
        plain(orders, run, batch, database)
        if orders_in(tmp_path):  # a query's first batch is an empty one
            raise RuntimeError("killed after both outputs have the batch")

    monkeypatch.setattr(etl, "write_sql", written_and_killed)
    with pytest.raises(Exception, match="killed after both outputs"):
        etl.main([str(tmp_path)])
    assert orders_in(tmp_path) == wanted, "the batch is in, and Spark does not know it"
    monkeypatch.setattr(etl, "write_sql", plain)
    assert etl.main([str(tmp_path)]) == 0
    assert orders_in(tmp_path) == wanted
    assert "Parquet: 500 orders\nSQL: 500 orders, 1247500 cents\n" in capsys.readouterr().out
    rows = spark.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted((row.order, row.customer, row.cents) for row in rows) == wanted


def test_enrichment_with_dead_letters(
    spark: Any, cluster: LocalCluster, tmp_path: Path, capsys: Any
) -> None:
    enrichment = example("enrichment")
    enrichment.declare(cluster.uri)
    enrichment.publish(cluster.uri, 200)
    assert enrichment.main([str(tmp_path)]) == 0
    # No payment: 20. Unknown: of the other 180 those that 4 divides and 10 does not, 40.
    printed = dict(re.findall(r"^(\S+): (\d+)$", capsys.readouterr().out, re.M))
    assert printed == {"payments": "0", "payments-enriched": "140", "payments-dead": "60"}, printed

    def browsed(queue: str) -> list[Any]:
        reader = spark.read.format("warren").options(uri=cluster.uri, queue=queue)
        return list(reader.load().collect())

    names = {"c1": ("Ada", "GB"), "c2": ("Blaise", "FR"), "c3": ("Carl", "DE")}
    for row in browsed("payments-enriched"):
        number = int(row.message_id.removeprefix("payment-"))
        name, country = names[f"c{number % 4}"]
        assert json.loads(row.body) == {
            "payment": number,
            "cents": number,
            "name": name,
            "country": country,
        }
        assert row.headers is None
    dead = browsed("payments-dead")
    assert Counter(row.headers["x-reason"].string for row in dead) == {
        "not a payment": 20,
        "unknown customer": 40,
    }
    assert {row.body for row in dead if row.headers["x-reason"].string == "not a payment"} == {
        b"no payment"
    }


def test_a_dashboard_counts_each_task_once(
    spark: Any,
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES / "celery_dashboard")
    dashboard = example("celery_dashboard")
    dashboard.declare(cluster.uri)
    broker_url = f"amqp://guest:guest@{cluster.hosts}//"
    dashboard.send_tasks(broker_url, 40)
    tasks = dashboard.shop_tasks
    # Orders 1 to 5 are shipped under one id: as a worker that died before it acknowledged runs
    # its task again.
    for order in range(1, 6):
        tasks.ship.apply_async((order,), task_id="again")
    with dashboard.worker(broker_url, tmp_path):
        deadline = time.monotonic() + 120
        with cluster.connect() as connection:
            done = Admin(connection).queues.get
            while done(TASKS).messages > 0 or dashboard.results(cluster.uri) < 41:
                assert time.monotonic() < deadline, (tmp_path / "worker.log").read_text()
                time.sleep(0.05)
    tasks.app.close()
    plain = dashboard.write_page

    def written_and_killed(rows: Any, page: Path) -> None:
        plain(rows, page)
        if rows:  # a query's first batch is an empty one
            raise RuntimeError("killed after the page has the batch")

    monkeypatch.setattr(dashboard, "write_page", written_and_killed)
    with pytest.raises(Exception, match="killed after the page"):
        dashboard.main([str(tmp_path)])
    monkeypatch.setattr(dashboard, "write_page", plain)
    page = tmp_path / "dashboard.html"
    first = page.read_text()
    page.unlink()
    assert dashboard.main([str(tmp_path)]) == 0
    assert page.read_text() == first, "the batch that ran again"
    found = re.findall(r"<tr><td>(\S+?)</td><td>(\d+)</td><td>(\d+)</td>", first)
    # Orders 0 to 19 of each kind, 0 and 10 refused; the repeated id is one more.
    assert found == [("shop.charge", "18", "2"), ("shop.ship", "21", "0")]
    assert '<p id="total">41 results</p>' in first


def test_lake_from_rabbitmq(
    spark: Any,
    rabbitmq: OneRabbitMQ,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = f"events-{uuid.uuid4().hex[:8]}"
    lake = example("lake")
    monkeypatch.setenv("RABBITMQ_URI", f"amqp://guest@{rabbitmq.hosts}")
    assert os.environ[lake.VARIABLE] == "guest", "set with the session"
    day = 1_709_164_800  # 2024-02-29

    def publish(first: int) -> None:
        with rabbitmq.connect() as connection:
            channel = connection.channel()
            channel.queue_declare(queue, durable=True)
            for kind in ("created", "paid"):
                channel.exchange_declare("shop", "direct", durable=True)
                channel.queue_bind(queue, "shop", kind)
            channel.confirm_delivery()
            for number in range(first, first + 20):
                properties = pika.BasicProperties(message_id=str(number), timestamp=day)
                kind = "paid" if number % 4 == 0 else "created"
                channel.basic_publish("shop", kind, b"{}", properties)

    for first in (0, 20):
        publish(first)
        assert lake.main([str(tmp_path), queue]) == 0
    rows = spark.read.parquet(str(tmp_path / "events")).collect()
    assert sorted(int(row.message_id) for row in rows) == list(range(40))
    assert Counter(row.kind for row in rows) == {"created": 30, "paid": 10}
    assert {str(row.day) for row in rows} <= {"2024-02-29", "2024-02-28"}, "the session's zone"


def declared(cluster: LocalCluster, name: str, bodies: list[bytes], **properties: Any) -> None:
    """Declare a queue with those messages."""
    with cluster.connect() as connection:
        Admin(connection).queues.declare(name)
        with Producer(connection) as producer:
            for number, body in enumerate(bodies):
                given = {key: each(number) for key, each in properties.items()}
                producer.send(body, name, **given)


def failing_once(streams: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Have the stream's first batch with rows end before Spark's commit log knows of it."""
    made = streams.STREAMS[name]

    def blocked(spark: Any, uri: str, directory: Path) -> Any:
        entry = directory / "checkpoint" / "commits" / "1"
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.touch()  # Spark does not continue from an entry that is none of its own
        monkeypatch.setitem(streams.STREAMS, name, made)
        return made(spark, uri, directory)

    monkeypatch.setitem(streams.STREAMS, name, blocked)


def run_with_a_crash(
    name: str, spark: Any, cluster: LocalCluster, directory: Path, patch: pytest.MonkeyPatch
) -> ModuleType:
    """Run a stream of examples/streams that ends within its first batch, and run it again."""
    streams = example("streams")
    failing_once(streams, patch, name)
    with pytest.raises(Exception, match=r".+"):
        streams.run(name, spark, cluster.uri, directory)
    (directory / "checkpoint" / "commits" / "1").unlink()
    streams.run(name, spark, cluster.uri, directory)
    return streams


def test_fifty_queues_are_one_table_with_each_message_once(
    spark: Any, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = Counter()
    for number in range(50):
        bodies = [b"%d-%d" % (number, at) for at in range(20)]
        declared(cluster, f"orders-{number}", bodies)
        wanted.update((body.decode(), f"orders-{number}") for body in bodies)
    run_with_a_crash("fan-in", spark, cluster, tmp_path, monkeypatch)
    found = Counter(map(tuple, spark.read.parquet(str(tmp_path / "rows")).collect()))
    assert found == wanted


def test_scores_are_published_once_for_each_message(
    spark: Any, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [b"x" * at for at in range(100)]
    declared(cluster, "images", bodies, message_id=lambda number: f"m{number}")
    declared(cluster, "scores", [])
    run_with_a_crash("score", spark, cluster, tmp_path, monkeypatch)
    read = spark.read.format("warren").option("uri", cluster.uri).option("queue", "scores")
    found = [json.loads(bytes(row.body)) for row in read.schema("body binary").load().collect()]
    wanted = [{"message_id": f"m{at}", "score": float(at)} for at in range(100)]
    assert sorted(found, key=lambda row: row["score"]) == wanted
    with cluster.connect() as connection:
        assert Admin(connection).queues.get("images").messages == 0


def test_a_late_message_counts_until_its_minute_is_over(
    spark: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    streams = example("streams")
    start = 1_790_000_040  # a whole minute

    def come(*minutes: float) -> None:
        times = [int(start + 60 * minute) for minute in minutes]
        declared(cluster, "events", [b""] * len(times), timestamp=lambda at: times[at])
        streams.run("late", spark, cluster.uri, tmp_path)

    come(0, 0.5, 5)
    come(0.2)  # late, and within ten minutes
    come(30)
    come(0.1)  # too late: its minute was written
    come(60)
    rows = spark.read.parquet(str(tmp_path / "counts")).collect()
    found = {int(row.minute.timestamp() - start) // 60: row["count"] for row in rows}
    assert found == {0: 3, 5: 1, 30: 1}
