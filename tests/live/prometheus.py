"""Debian's Prometheus, scraping a cluster of these tests with the alert rules of `deploy`."""

from __future__ import annotations

import json
import math
import re
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Final

from live.conftest import eventually
from tests.patience import PATIENCE_S
from tools import debian
from warren.ports import ReservedPorts

RULES: Final = Path(__file__).resolve().parents[2] / "deploy/prometheus/rules.yaml"
JOBS: Final = {"warren": "/metrics", "warren-queues": "/metrics/per-object"}
FOR_S: Final = 3
WINDOW_S: Final = 10
"""What the rules' own times are here: minutes would be too long for a test."""


def quicker(rules: str, thresholds: dict[str, str]) -> str:
    """Return the rules with short times; thresholds: what else is replaced, each at least once."""
    rules = re.sub(r"(?m)^( *for:) \d+[smh]$", rf"\1 {FOR_S}s", rules)
    rules = re.sub(r"\[\d+[smh]\]", f"[{WINDOW_S}s]", rules)
    for one, other in thresholds.items():
        assert one in rules, one
        rules = rules.replace(one, other)
    return rules


class Prometheus:
    """A Prometheus that scrapes each second; its targets can be changed while it runs."""

    def __init__(self, place: Path, rules: str) -> None:
        program = debian.unpacked("prometheus")
        assert program is not None, "tools.debian unpacks it"
        place.mkdir(parents=True)
        self._targets = place / "targets.json"
        self.scrape([])
        (place / "rules.yaml").write_text(rules)
        jobs = [
            {"job_name": job, "metrics_path": path, "file_sd_configs": [self._found()]}
            for job, path in JOBS.items()
        ]
        timing = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
        config = {"global": timing, "rule_files": ["rules.yaml"], "scrape_configs": jobs}
        (place / "prometheus.yaml").write_text(json.dumps(config))
        self._ports = ReservedPorts()
        self.address = f"127.0.0.1:{self._ports.take()}"
        options = (
            f"--config.file={place}/prometheus.yaml",
            f"--storage.tsdb.path={place}/data",
            f"--web.listen-address={self.address}",
        )
        with (place / "log").open("wb") as log:
            self._process = subprocess.Popen([program, *options], stdout=log, stderr=log)
        eventually(self._ready, "Prometheus is ready")

    def _found(self) -> dict[str, Any]:
        return {"files": [self._targets.name], "refresh_interval": "1s"}

    def scrape(self, addresses: list[str]) -> None:
        """Scrape these from now on."""
        self._targets.write_text(json.dumps([{"targets": addresses}]))

    def _ready(self) -> bool:
        assert self._process.poll() is None, "it has ended; see its log"
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=1):
                return True
        except OSError:
            return False

    def _get(self, path: str, **given: str) -> Any:
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(given)}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def ask(self, expression: str) -> list[float]:
        """Return the values of an instant query that are numbers."""
        found = self._get("query", query=expression)["result"]
        values = [float(one["value"][1]) for one in found]
        return [value for value in values if not math.isnan(value)]

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire."""
        alerts = self._get("alerts")["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(PATIENCE_S)
