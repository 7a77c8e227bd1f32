"""Levels of a node's log are changed in every door while it runs, and its lines are read there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from live.conftest import eventually
from live.http_client import SETTINGS, http_client
from warren.admin import Admin
from warren.cli.app import app
from warren.connection import Connection
from warren.errors import PeerError
from warren.local import LocalCluster
from warren_wire.admin.node_facts import NodeSetting

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    file = tmp_path_factory.mktemp("logs") / "warren.log"
    log = {"file": {"path": str(file), "formatter": "json"}, "levels": {"shovel": "debug"}}
    with LocalCluster(nodes=1, settings={**SETTINGS, "log": log}) as made:
        yield made


def test_levels_and_lines_in_every_door(cluster: LocalCluster) -> None:
    uri = f"amqp://guest:guest@{cluster.addresses[0]}/%2F"
    http = http_client(cluster)

    def levels() -> dict[str, str]:
        return {one["category"]: one["level"] for one in http.get("/log/levels")}

    def run(*words: str) -> str:
        return CliRunner().invoke(app, [*words, "--uri", uri]).stdout

    assert levels()["shovel"] == "debug" and levels()["connection"] == "default"
    with Connection(uri) as connection:
        admin = Admin(connection)
        admin.logs.set_level("connection", "debug")
        assert levels()["connection"] == "debug"
        assert http("PUT", "/log/levels/raft", {"level": "error"}).status == 200
        assert "category http: warning" in run("logs", "set-level", "http", "warning")
        assert (levels()["raft"], levels()["http"]) == ("error", "warning")
        with pytest.raises(PeerError, match="one of"):
            admin.logs.set_level("connection", "loud")  # type: ignore[arg-type]
        with Connection(uri) as another:
            Admin(another).whoami()
        accepting = "accepting AMQP 1.0 connection"
        eventually(lambda: admin.logs.lines(contains=accepting).lines, "a debug line")
        assert accepting in run("logs", "tail", "--contains", accepting)
        (change,) = admin.audit.page(contains="PUT /log/levels/:category", user="guest").records[:1]
        assert change.new == {"level": "warning"} and change.target == {"category": "http"}
    path = Path(next(one.value for one in _settings(uri) if one.name == "log.file.path"))
    lines = [json.loads(one) for one in path.read_text().splitlines()]
    opened = [one for one in lines if one["event"].startswith("connection_amqp_user_authenticated")]
    assert opened[0]["fields"]["user"] == "guest" and opened[0]["level"] == "info"


def _settings(uri: str) -> tuple[NodeSetting, ...]:
    with Connection(uri) as connection:
        return Admin(connection).cluster.settings("node-0")
