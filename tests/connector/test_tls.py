"""The connector's driver and tasks over TLS."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from connector.test_real_broker import SCHEMA, attempt
from pyspark_warren import errors
from pyspark_warren.claims.client import connect
from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.reader import read_task
from pyspark_warren.errors import named_conditions
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.sink.writer import write_staged
from pyspark_warren.surroundings import Surroundings
from tests.certificates import Authority
from tests.live.test_tls import TlsBroker
from tests.patience import PROMPTLY_S
from warren.admin import Admin
from warren.connection import Connection

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    directory = tmp_path_factory.mktemp("mutual")
    with TlsBroker(directory, verify="verify_peer", fail_if_no_peer_cert=True) as made:
        yield made


def given(broker: TlsBroker, where: str, **more: str) -> Options:
    """The options, as they reach an executor."""
    client = broker.authority.issue("spark")
    said = {
        "hosts": f"localhost:{broker.port}",
        "tls": "true",
        "caFile": str(broker.authority.cert),
        "certFile": str(client.cert),
        "keyFile": str(client.key),
        "requestTimeout": "2m",
        **more,
    }
    made: Options = pickle.loads(
        pickle.dumps(parse_options({k: v for k, v in said.items() if v}, where))
    )
    return made


def test_a_batch_is_published_and_claimed(mutual: TlsBroker) -> None:
    tls = given(mutual, "write").address()
    with Connection(tls) as connection:
        Admin(connection).queues.declare("spark", arguments={"x-queue-type": "quorum"})
    rows = [pa.record_batch({"body": pa.array([b"%d" % i * 1000] * 5_000)}) for i in range(4)]
    writing = given(mutual, "write", routingKey="spark")
    part = write_staged(connect(writing), writing, attempt("spark"), iter(rows))
    assert connect(writing).publish_batch(part.driver, 0, part.stages, 30) == 20_000
    reading = given(mutual, "read", queue="spark")
    driver = ClaimDriver(
        connect(reading),
        replace(reading, prefetch_claims=0),
        Surroundings.of_this_process(),
    )
    start = driver.latest(driver.initial(), 1)
    end = driver.latest(start, None)
    bodies = [
        row["body"]
        for one in driver.plan(start, end)
        for batch in read_task(connect, reading, [one], SCHEMA)
        for row in batch.to_pylist()
    ]
    assert sorted(bodies) == sorted(body for batch in rows for body in batch["body"].to_pylist())
    driver.settle(end)
    assert connect(reading).queue("spark").messages_ready == 0


@pytest.mark.parametrize(
    ("case", "says"), [("no certificate", "certFile"), ("wrong authority", "caFile")]
)
def test_refusals_fail_the_query_at_once(
    mutual: TlsBroker, tmp_path: Path, case: str, says: str
) -> None:
    more = {"certFile": "", "keyFile": ""}
    if case == "wrong authority":
        more = {"caFile": str(Authority(tmp_path / "other").cert)}
    begun = time.monotonic()
    options = given(mutual, "read", queue="spark", **more)
    with pytest.raises(errors.BrokerRefusedError, match=says), named_conditions("reading"):
        connect(options).queue("spark")
    assert time.monotonic() - begun < PROMPTLY_S, "it does not try until requestTimeout"
