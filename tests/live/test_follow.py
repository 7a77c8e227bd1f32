"""`warren audit --follow`, `warren logs tail --follow`, over a restart of the node; `settings`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from live.conftest import eventually
from live.http_client import SETTINGS
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.local import LocalCluster

pytestmark = pytest.mark.live


@contextmanager
def following(*words: str) -> Iterator[list[str]]:
    """The lines that a command prints until now."""
    command = [sys.executable, "-m", "warren.cli", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    lines: list[str] = []
    assert process.stdout is not None
    reads = threading.Thread(target=lambda: lines.extend(process.stdout or ()), daemon=True)
    reads.start()
    try:
        yield lines
    finally:
        process.kill()
        process.wait()
        reads.join()


def put(cluster: LocalCluster, uri: str, name: str) -> None:
    def done() -> bool:
        with Connection(uri) as connection:
            Admin(connection).users.put(name, password="x")
        return True

    eventually(done, "a user is made")


def test_what_comes_is_shown_over_a_restart() -> None:
    with LocalCluster(nodes=1, settings=SETTINGS) as cluster:
        uri = f"amqp://guest:guest@{cluster.addresses[0]}/%2F"
        audit = ("audit", "--follow", "--jsonl", "--kind", "change", "--uri", uri)
        logs = ("logs", "tail", "--follow", "--contains", "serves clients", "--uri", uri)
        with following(*audit) as records, following(*logs) as lines:
            for name in ("ann", "bob"):
                put(cluster, uri, name)
                eventually(lambda name=name: name in "".join(records), f"{name} is shown")
                eventually(lambda: len(lines) >= 1, "its start is shown")
                if name == "ann":
                    cluster.kill("node-0")
                    cluster.start("node-0")
            eventually(lambda: len(lines) == 2, "its second start is shown")
        users = [json.loads(one)["target"]["user"] for one in records]
        assert users == ["ann", "bob"]
        shown = CliRunner().invoke(app, ["settings", "--json", "--changed", "--uri", uri])
        assert shown.exit_code == 0, shown.output
        found = {one["name"]: one for one in json.loads(shown.stdout)}
        assert found["node"]["origin"] in ("file", "environment")
        assert {one["origin"] for one in found.values()} <= {"file", "environment"}
        table = CliRunner().invoke(app, ["settings", "--contains", "audit.", "--uri", uri])
        assert "audit.files_max" in table.stdout and "all" in table.stdout
