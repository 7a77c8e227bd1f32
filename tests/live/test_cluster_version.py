"""What shows the cluster's version: the command line, the HTTP API, a metric."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from live.http_client import SETTINGS, add_user, http_client
from warren.cli.app import app
from warren.local import LocalCluster
from warren_raft.versions import NEWEST, OLDEST

pytestmark = pytest.mark.live
SHOWN = {
    "version": NEWEST,
    "attainable": NEWEST,
    "nodes": [{"name": "node-0", "oldest": OLDEST, "newest": NEWEST, "holds_back": False}],
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    settings = {**SETTINGS, "prometheus": {"enabled": True, "tcp": {"port": 0}}}
    with LocalCluster(nodes=1, directory=tmp_path, settings=settings) as made:
        yield made


def test_the_version_is_shown_and_an_upgrade_finished(cluster: LocalCluster) -> None:
    http = http_client(cluster)
    assert http.get("/cluster-version") == SHOWN
    finished = http("POST", "/cluster-version/finish-upgrade")
    assert (finished.status, finished.body) == (200, SHOWN)
    monitor = add_user(http, "watch", "monitoring")
    assert monitor.get("/cluster-version") == SHOWN
    assert monitor("POST", "/cluster-version/finish-upgrade").status in (401, 403)
    assert add_user(http, "plain", "management")("GET", "/cluster-version").status in (401, 403)
    run = CliRunner()
    shown = run.invoke(app, ["cluster", "version", "--uri", cluster.uri, "--json"])
    assert json.loads(shown.stdout) == SHOWN
    assert "holds it back" in run.invoke(app, ["cluster", "version", "--uri", cluster.uri]).stdout
    done = run.invoke(app, ["cluster", "finish-upgrade", "--uri", cluster.uri])
    assert f"the cluster has version {NEWEST}" in done.stdout
    said = json.loads((cluster.nodes[0].data_dir / "ready.json").read_text())
    with urllib.request.urlopen(f"http://{said['prometheus']}/metrics") as answer:
        assert f"warren_cluster_version {NEWEST}.0" in answer.read().decode()
