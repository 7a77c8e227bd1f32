"""Flower beside a Celery worker: it lists the broker's queues over the HTTP API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.ports import free_ports
from live.conftest import eventually
from live.http_client import SETTINGS, api_address
from live.test_celery import working
from tests.patience import PATIENCE_S
from warren.local import LocalCluster

pytestmark = [pytest.mark.live, pytest.mark.slow]


def read(address: str) -> str:
    """What Flower answers; nothing while it starts."""
    try:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return ""


def test_flower_lists_queues_with_messages_and_consumers(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, settings=SETTINGS) as cluster:
        uri = f"amqp://guest:guest@127.0.0.1:{cluster.nodes[0].amqp_port}//"
        with working(SimpleNamespace(uri=uri), tmp_path, "live.celery_app") as celery:
            queue = celery.app.conf.task_default_queue
            assert celery.add.delay(1, 2).get(timeout=PATIENCE_S) == 3
            port = free_ports(1)
            api = f"http://guest:guest@{api_address(cluster, 0)}/api/"
            command = ["-m", "celery", "-A", "live.celery_app", "flower", f"--port={port}"]
            with (tmp_path / "flower.log").open("wb") as log:
                flower = subprocess.Popen(
                    [sys.executable, *command, "--address=127.0.0.1", f"--broker-api={api}"],
                    cwd=Path(__file__).resolve().parent.parent,
                    env={**os.environ, "FLOWER_UNAUTHENTICATED_API": "true"},
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            try:
                found = eventually(lambda: shown(port, queue), "Flower shows the worker's queue")
            finally:
                flower.terminate()
                flower.wait(PATIENCE_S)
                print((tmp_path / "flower.log").read_text()[-4000:])
    assert found[:3] == ["0", "0", "0"], "messages, unacked, ready"
    assert found[3] == "1", "consumers"


def shown(port: int, queue: str) -> Any:
    """The numbers of the queue's row of the page; nothing until they are there."""
    page = read(f"http://127.0.0.1:{port}/broker")
    row = re.search(rf"<td>{re.escape(queue)}</td>(.*?)</tr>", page, re.S)
    lengths = read(f"http://127.0.0.1:{port}/api/queues/length")
    if row is None or not lengths:
        return None
    known = {one["name"]: one["messages"] for one in json.loads(lengths)["active_queues"]}
    numbers = re.findall(r"<td[^>]*>\s*([^<]*?)\s*</td>", row[1])
    return numbers if known.get(queue) == 0 and numbers[:1] == ["0"] else None
