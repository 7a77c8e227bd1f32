"""What Helm makes of the chart, as Kubernetes would hold it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from chart import page
from chart.programs import BIN

NAMESPACE = "default"
ADDRESS = "10.96.0.7"
"""Of the Services for clients."""


class Rendered:
    """The objects of a release, and others beside them, by kind and name.

    An upgrade keeps the Secrets, as `lookup` of the chart does in a cluster.
    """

    def __init__(self, release: str, *arguments: str) -> None:
        self._release = release
        self._arguments = arguments
        self._held: list[dict[str, Any]] = []
        self.upgrade()

    def upgrade(self, *arguments: str) -> None:
        """Render again, with more arguments for Helm."""
        self._arguments += arguments
        made = helm("template", self._release, str(page.CHART), *self._arguments)
        secrets = [one for one in self._held if one["kind"] == "Secret"]
        kept = {one["metadata"]["name"] for one in secrets}
        new = [
            one
            for one in _objects(made)
            if one["kind"] != "Secret" or one["metadata"]["name"] not in kept
        ]
        self._held = secrets + new

    def add_secrets(self, data: dict[str, dict[str, str]]) -> None:
        """Add Secrets with this data, encoded as Secrets have it."""
        self._held += [
            {"kind": "Secret", "metadata": {"name": name}, "data": values}
            for name, values in data.items()
        ]

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return one object."""
        return next(one for one in self.all(kind) if one["metadata"]["name"] == name)

    def all(self, kind: str) -> list[dict[str, Any]]:
        """Return the objects of a kind."""
        return [one for one in self._held if one["kind"] == kind]

    def pod(self, name: str) -> dict[str, Any]:
        """Return a pod of the StatefulSet."""
        (found,) = self.all("StatefulSet")
        return {"metadata": {"name": name}, "spec": found["spec"]["template"]["spec"]}


def run_helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm; return what became of it."""
    command = [str(BIN / "helm"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def helm(*arguments: str) -> str:
    """Run Helm, which must succeed; return its output."""
    done = run_helm(*arguments)
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


def _objects(made: str) -> list[dict[str, Any]]:
    """Parse YAML, as Kubernetes does: kubectl needs no API server for that."""
    command = [str(BIN / "kubectl"), "annotate", "--local", "-f", "-", "-o", "json", "read=here"]
    done = subprocess.run(command, input=made, capture_output=True, text=True, check=True)
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(done.stdout):
        one, at = decoder.raw_decode(done.stdout, at)
        found.append(one)
        at += 1  # the line's end
    return found
