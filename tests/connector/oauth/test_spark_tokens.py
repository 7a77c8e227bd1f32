"""Spark with a token endpoint: over several tokens, and nothing secret in what Spark shows."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from connector.amqp.query import Queue
from connector.amqp.rabbitmq import OneRabbitMQ
from connector.amqp.test_publish import Declared
from connector.oauth.endpoint import SECRET, TokenEndpoint, granting
from connector.test_secrets import everything_shown
from tests.patience import PATIENCE_S
from tests.signing_key import SigningKey

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow, pytest.mark.long]

LIFE_S = 5.0
TOKENS = 9
"""Driver, receiver and the sink's tasks together: each has four or so in twenty seconds."""


def test_from_queue_to_queue_over_several_tokens(
    rabbitmq: OneRabbitMQ, key: SigningKey, spark: Any, tmp_path: Path, capsys: Any
) -> None:
    """Every message arrives once, nothing has the secret or a token."""
    source, target = Queue(rabbitmq), Declared(rabbitmq.connect)
    tokens: list[str] = []
    grant = granting(key, LIFE_S)

    def answer(asked: Any) -> Any:
        made = grant(asked)
        tokens.append(made.body["access_token"])
        return made

    with TokenEndpoint(answer) as endpoint:
        given = {"hosts": rabbitmq.hosts, "broker": "amqp", **endpoint.options()}
        reading = {**given, "queue": source.name, "spoolLocation": str(tmp_path / "spool")}
        rows = spark.readStream.format("warren").options(**reading).load()
        query = (
            rows.select("body", "message_id")
            .writeStream.format("warren")
            .options(routingKey=target.name, **given)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="1 second")
            .start()
        )
        deadline = time.monotonic() + PATIENCE_S
        while len(tokens) < TOKENS:
            source.publish(10)
            assert query.exception() is None and time.monotonic() < deadline, len(tokens)
            threading.Event().wait(0.5)
        rows.explain(True)
        query.explain(True)
        while source.ready() and time.monotonic() < deadline:
            threading.Event().wait(0.1)
        query.processAllAvailable()
        shown = [json.dumps(query.status), *(str(one.json) for one in query.recentProgress)]
        query.stop()
    found = [(properties.message_id, body) for _, properties, body in target.messages()]
    assert sorted(found) == sorted((str(at), body) for at, body in enumerate(source.bodies))
    shown += [everything_shown(spark), capsys.readouterr().out]
    shown += [
        path.read_bytes().decode(errors="replace") for path in tmp_path.rglob("*") if path.is_file()
    ]
    for secret in (SECRET, *tokens):
        leaks = [text for text in shown if secret in text]
        assert not leaks, leaks[0][:3000]
