"""What becomes of a release's pods during a command, event by event."""

from __future__ import annotations

import json
import subprocess
import threading
from typing import Any

from chart.control_plane import ControlPlane, wait_until


class Rollout:
    """Watches a StatefulSet's pods within a `with`.

    ready_min  the least number of pods that were ready at one time
    replaced   the pods that were made again, in that order
    """

    def __init__(self, plane: ControlPlane, instance: str) -> None:
        self._selector = f"app.kubernetes.io/name=warren,app.kubernetes.io/instance={instance}"
        self._plane = plane
        self._ids: dict[str, str] = {}
        self._ready: dict[str, bool] = {}
        self.replaced: list[str] = []
        self.ready_min = 0

    def __enter__(self) -> Rollout:
        held = self._plane.list("pods", self._selector)
        for pod in held["items"]:
            self._see("ADDED", pod)
        self.ready_min = sum(self._ready.values())
        since = f"&watch=1&resourceVersion={held['metadata']['resourceVersion']}"
        self._process = subprocess.Popen(
            ["kubectl", "get", "--raw", self._plane.path("pods", self._selector) + since],
            env=self._plane.environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._thread.join()

    def finished(self, replaced: int) -> None:
        """Wait until so many pods were replaced and all are ready."""
        wait_until(
            lambda: len(self.replaced) >= replaced and all(self._ready.values()),
            f"{replaced} pods are replaced",
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            self._see(event["type"], event["object"])
            self.ready_min = min(self.ready_min, sum(self._ready.values()))

    def _see(self, kind: str, pod: dict[str, Any]) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if kind == "DELETED":
            self._ready.pop(name, None)
            return
        if self._ids.setdefault(name, uid) != uid:
            self.replaced.append(name)
        self._ids[name] = uid
        conditions = pod["status"].get("conditions", ())
        held = {one["type"] for one in conditions if one["status"] == "True"}
        self._ready[name] = "Ready" in held and "deletionTimestamp" not in pod["metadata"]
