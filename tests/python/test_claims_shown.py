"""`warren claims list` on real nodes: the query that reads, and when a reader is forgotten."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.patience import PATIENCE_S
from warren import Admin, ClaimReader, Connection, Producer
from warren.claims import fetch_claim
from warren.cli.app import app
from warren.local import LocalCluster
from warren_wire.block.layout import AREAS
from warren_wire.queue_values.describe_command import ReadBy

pytestmark = pytest.mark.live


def shown(cluster: LocalCluster, *words: str) -> str:
    environment = {"WARREN_URI": cluster.uri, "COLUMNS": "400", "TERM": "dumb"}
    result = CliRunner().invoke(app, ["claims", "list", *words], env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def described(cluster: LocalCluster, number: int) -> dict[str, Any]:
    """What is shown once claim `number` is; nothing waits for the note in the queue's log."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (reader,) = json.loads(shown(cluster, "read", "--json"))
        if (reader["read_by"] or {}).get("number") == number:
            found: dict[str, Any] = reader["read_by"]
            return found
        assert time.monotonic() < deadline, reader
        time.sleep(0.05)


def test_the_query_and_batch_that_read_a_claim_are_shown(cluster: LocalCluster) -> None:
    long = "ж" * 200  # 400 bytes: cut, in the middle of a character
    with cluster.connect() as connection:
        Admin(connection).queues.declare("read", arguments={"x-queue-type": "quorum"})
        with Producer(connection) as producer:
            for body in (b"1", b"2", b"3"):
                producer.send(body, "read")
        reader = ClaimReader(connection, "read", "driver")
        number = reader.register(expires_ms=3_600_000).settled + 1

        def fetch(first: int, read_by: ReadBy) -> None:
            pieces = fetch_claim(connection, "read", "driver", number, first, 1, AREAS, read_by)
            assert sum(piece.messages for piece in pieces) == 1 - first

        for batch, name in ((41, "orders & more"), (42, ""), (43, long)):
            reader.open(number, max_messages=1, max_bytes=1 << 20)
            fetch(0, ReadBy("0d3c", name, batch))
            found = described(cluster, number)
            assert (found["query"], found["batch"]) == ("0d3c", batch)
            assert long.startswith(found["name"]) if name == long else found["name"] == name
            line = shown(cluster, "read")
            said = f"{found['name']} (0d3c)" if name else "0d3c"
            assert f"{number}: batch {batch} of {said}" in line
            reader.settle(number)
            number += 1
        assert "in 3,6" in line or "in 3,5" in line, "in how long the reader is forgotten"


def test_times_are_shown_by_the_leaders_clock(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were compared with this machine's: hours ahead, all was forgotten, and heard long ago.

    Every node answers with the leader's time, also one that still sends to the queue what was
    published, and so asks for the counts behind it.
    """
    queue, expires_ms = "timed", 3_600_000
    with cluster.connect() as connection:
        Admin(connection).queues.declare(queue, arguments={"x-queue-type": "quorum"})
        reader = ClaimReader(connection, queue, "driver")
        reader.register(expires_ms=expires_ms)
        with Producer(connection) as producer:
            for _ in range(50):
                producer.send(b"x" * 10_000, queue)
            seen = [Admin(connection).claims.readers(queue)[0]]
            producer.flush()
    for i in range(3):
        with Connection(cluster.node_address(i)) as at:
            seen += Admin(at).claims.readers(queue)
    for each in seen:
        assert each.heard_ago_ms is not None and 0 <= each.heard_ago_ms < PATIENCE_S * 1000
        assert each.expires_in_ms == expires_ms - each.heard_ago_ms
    ahead_s = 5 * 3_600
    monkeypatch.setattr(time, "time", lambda now=time.time: now() + ahead_s)
    line = shown(cluster, queue)
    assert "in 3,6" in line or "in 3,5" in line
    assert re.search(r" \d{1,3} s ago ", line), line
