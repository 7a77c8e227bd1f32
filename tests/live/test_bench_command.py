"""`warren bench` drives any AMQP 0.9.1 broker, and says what it got done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.connection import Connection
from warren.local import LocalCluster

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1) as made:
        yield made


def bench(
    cluster: LocalCluster, *words: str, login: str = "guest:guest"
) -> subprocess.CompletedProcess[str]:
    uri = f"amqp://{login}@{cluster.addresses[0]}/%2F"
    return subprocess.run(
        [sys.executable, "-m", "warren.cli", "bench", *words, "--uri", uri],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_messages_are_published_confirmed_and_consumed(cluster: LocalCluster) -> None:
    done = bench(cluster, "--seconds", "2", "--rate", "500", "--consumers", "2", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert 0 < said["published_per_s"] <= 550 and said["refused"] == 0
    assert said["confirmed_per_s"] > 0 and said["consumed_per_s"] > 0
    assert 0 < said["p50_ms"] <= said["p99_ms"]
    with Connection(f"amqp://guest:guest@{cluster.addresses[0]}/%2F") as connection:
        assert Admin(connection).queues.list() == []


def test_lines_come_while_it_runs_and_the_queue_may_stay(cluster: LocalCluster) -> None:
    words = ("--seconds", "6", "--consumers", "0", "--window", "10", "--keep", "--jsonl")
    lines = bench(cluster, *words).stdout.splitlines()
    assert len(lines) >= 2 and all(json.loads(one)["consumed_per_s"] == 0 for one in lines)
    with Connection(f"amqp://guest:guest@{cluster.addresses[0]}/%2F") as connection:
        (queue,) = Admin(connection).queues.list()
    assert queue.messages_ready > 0


def test_a_refusal_is_said(cluster: LocalCluster) -> None:
    done = bench(cluster, "--seconds", "1", login="guest:wrong")
    assert done.returncode == 1 and "user or password is refused" in done.stderr
    done = bench(cluster, "--publishers", "0", "--consumers", "0")
    assert done.returncode == 1 and "nothing to do" in done.stderr
