"""Pipelines as processes of their own: started, killed from inside, started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_world.fake import FakeServer

ROOT = Path(__file__).resolve().parents[3]
PATH = [str(ROOT / name) for name in ("tests/connector", "connector", "python", "broker", "raft")]
RUN_S_MAX = 240


@dataclass
class World:
    """A fake broker with queues `in` and `out`, and a directory for checkpoints and outputs."""

    server: FakeServer
    directory: Path

    @property
    def kill_plan(self) -> Path:
        """Where the next kill is written."""
        return self.directory / "kill"

    def publish(self, count: int, first: int = 0) -> list[bytes]:
        """Numbered messages of three priorities into `in`."""
        bodies = [b"message %06d" % i for i in range(first, first + count)]
        self.server.broker.publish("in", bodies, [4 + i % 3 for i in range(count)])
        return bodies

    def arm(self, point: str, number: int = 1) -> None:
        """The number-th arrival at that point kills."""
        self.kill_plan.write_text(f"{point} {number}")

    @property
    def killed(self) -> bool:
        """Whether the armed kill was carried out."""
        done = self.kill_plan.with_name("kill.done")
        was = done.exists()
        done.unlink(missing_ok=True)
        return was

    def run(self, **plan: Any) -> subprocess.CompletedProcess[str]:
        """One run of the query, to its end or its death."""
        plan = {"port": self.server.port, "checkpoint": str(self.directory / "checkpoint"), **plan}
        return subprocess.run(
            [sys.executable, "-m", "spark_world.pipeline", json.dumps(plan)], capture_output=True,
            text=True, timeout=RUN_S_MAX, env=self.environment(), cwd=self.directory)

    def finish(self, **plan: Any) -> list[dict[str, Any]]:
        """A run that must end well; its batches."""
        done = self.run(**plan)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.strip().splitlines()[-1])["batches"]

    def environment(self) -> dict[str, str]:
        """For a driver and everything that it starts."""
        return {**os.environ, "PYTHONPATH": os.pathsep.join(PATH), "PYSPARK_PYTHON": sys.executable,
                "WARREN_TEST_KILL": str(self.kill_plan)}

    def check_exact(self, bodies: list[bytes]) -> None:
        """Every message once in `out`, none left in `in`, nothing claimed, nothing staged."""
        out = self.server.broker.bodies("out")
        assert len(out) == len(bodies), (len(out), len(bodies))
        assert sorted(out) == sorted(bodies)
        state = self.server.broker.state("in")
        assert (state["ready"], state["claims"]) == (0, {}), state
        assert state["acknowledged"] == len(bodies)
        assert self.server.broker.state("out")["staged"] == 0
