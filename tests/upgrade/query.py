"""A Spark query from queue to queue that runs while nodes are rolled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from live.conftest import eventually
from tests.patience import PATIENCE_S
from warren.admin import Admin
from warren.errors import WarrenError
from warren.local import LocalCluster

SOURCE, TARGET = "streamed", "streamed-out"
ROLL_S = 3_600
BATCH_S = 600
"""Spark's first batch takes a minute or two on a machine that is busy."""
EVERY = "500 milliseconds"
MODULE = "spark_world.pipeline"
PLACE = Path(__file__).resolve().parents[1] / "connector"


class Query:
    """One driver's process after the other, on one checkpoint.

    SOURCE has a publisher while the query runs, so that TARGET grows as long as the query lives.
    """

    def __init__(self, cluster: LocalCluster, place: Path) -> None:
        self._cluster = cluster
        self._log = place / "query.log"
        self._plan: dict[str, Any] = {
            "hosts": ",".join(cluster.addresses),
            "format": "warren",
            "source_queue": SOURCE,
            "target_queue": TARGET,
            "checkpoint": str(place / "checkpoint"),
            "within_s": ROLL_S,
        }
        self._process = self._start(trigger={"processingTime": EVERY})

    def _start(self, **more: Any) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            places = os.pathsep.join((str(PLACE), os.environ["PYTHONPATH"]))
            env = {**os.environ, "PYTHONPATH": places, "PYSPARK_PYTHON": sys.executable}
            command = [sys.executable, "-m", MODULE, json.dumps({**self._plan, **more})]
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)

    def _written(self) -> int:
        try:
            with self._cluster.connect() as connection:
                return Admin(connection).queues.get(TARGET).messages
        except WarrenError:
            return -1  # a node is restarting

    def goes_on(self) -> None:
        """It has written more than now, by the driver that was started first."""
        before = self._written()
        eventually(
            lambda: self._ended() or self._written() > max(before, 0), "the query goes on", BATCH_S
        )
        assert not self._ended(), f"the query ended: {self._log.read_text()[-2_000:]}"

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def finish(self) -> None:
        """Nothing is published any more: kill the driver; another one writes what is left."""
        self.kill()
        self._process = self._start()
        code = self._process.wait(PATIENCE_S)
        assert code == 0, self._log.read_text()[-2_000:]

    def kill(self) -> None:
        """End the driver, if it runs."""
        self._process.kill()
        self._process.wait(PATIENCE_S)
