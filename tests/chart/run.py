"""`build.py chart`: the Helm chart, and real nodes with the configuration of its pods.

1. `helm lint --strict`, kube-score, and values that the schema refuses.
2. Every combination of values is rendered.
3. The commands of docs/how-to/kubernetes.md run in order. Beside the pods that Helm renders, their
   nodes run as processes on loopback, with the pods' environments, files, probes and hooks:
   `kubectl exec` and `helm test` reach them. `helm install` and `helm upgrade` render; what
   else kubectl would do needs an API server, and is left out.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from chart import page, programs
from chart.pods import Pods
from chart.rendered import Rendered, helm, run_helm
from tests.certificates import Authority
from tools import console

CHART = str(page.CHART)
SCORE_EXCEPTIONS = {
    "container-image-pull-policy": "a release's tag never changes, so it is pulled once",
    "container-resources: CPU limit is not set": "throttled, a node would miss its heartbeats",
    "warren-test: pod-networkpolicy": "nothing calls the client of `helm test`",
}
"""What kube-score calls critical and the chart does on purpose, each with its reason."""
REFUSED = {
    "replicas=0": "replicas",
    "tls.enabled=true": "tls",
    "tls.betweenNodes=true": "tls",
    "resources.limits.memory=2G": "memory",
    "auth.password=a@b": "password",
    "replica=3": "replica",
}
"""Values that the schema refuses → what its text names."""
MATRIX: tuple[tuple[str, ...], ...] = (
    ("replicas=1", "replicas=3", "replicas=5"),
    (
        "tls.enabled=false",
        "tls.enabled=true,tls.existingSecret=mine",
        "tls.enabled=true,tls.existingSecret=mine,tls.ca=false,tls.plain=false",
        "tls.enabled=true,tls.certManager.issuer=mine,tls.betweenNodes=true",
    ),
    (
        "auth.password=secret",
        "auth.existingSecret=mine,definitions.existingSecret=mine,serviceMonitor.enabled=true",
        "definitions.existingConfigMap=mine,spread.hosts=preferred,spread.zones=required",
        "definitions.data.users[0].name=a,spread.hosts=none,spread.zones=none,listen=::",
    ),
)


def proved(text: str) -> None:
    """Print what was shown."""
    console.say(f" ✓ {text}")


def static_checks() -> None:
    """Lint, score, and the schema."""
    helm("lint", "--strict", CHART)
    used: set[str] = set()
    for values in ((), (MATRIX[1][3], MATRIX[2][1])):
        scored = subprocess.run(
            [str(programs.BIN / "kube-score"), "score", "--output-format=json"]
            + ["--kubernetes-version=v1.37", "-"],
            input=helm("template", "warren", CHART, *_sets(values)),
            capture_output=True,
            text=True,
            check=False,
        )
        for of in json.loads(scored.stdout):
            for check in of["checks"] or ():
                critical = check["grade"] == 1 and not check["skipped"]
                for comment in (check["comments"] or ()) if critical else ():
                    name = of["object_name"].rpartition("/")[2]
                    text = f"{name}: {check['check']['id']}: {comment['summary']}"
                    excused = {one for one in SCORE_EXCEPTIONS if one in text}
                    assert excused, text
                    used |= excused
    assert used == set(SCORE_EXCEPTIONS), used
    for values, named in REFUSED.items():
        done = run_helm("template", "warren", CHART, "--set", values)
        assert done.returncode != 0 and named in done.stderr, (values, done.stderr)
    proved(
        f"helm lint --strict; kube-score without criticals ({len(used)} exceptions); "
        f"{len(REFUSED)} wrong values refused"
    )


def combinations() -> None:
    """Render every combination of values."""
    all_values = list(itertools.product(*MATRIX))
    for values in all_values:
        helm("template", "warren", CHART, *_sets(values))
    proved(f"{len(all_values)} combinations of values are rendered")


class Walk:
    """The page's commands, with pods that run here."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.releases: dict[str, Pods] = {}
        for name, text in page.files().items():
            (folder / name).write_text(text, encoding="utf-8")

    def of(self, section: str, beginning: str) -> list[str]:
        """Run a section's commands that begin so; return their outputs."""
        found = [line for line in page.commands(section) if line.startswith(beginning)]
        assert found, (section, beginning)
        return [self.run(line) for line in found]

    def run(self, line: str) -> str:
        """Run one command, in its pod where it has one."""
        words = shlex.split(line)
        if words[:2] == ["helm", "test"]:
            pods = self.releases[words[2]]
            (hook,) = pods.objects.all("Pod")
            return pods.run_test(hook)
        if words[:2] == ["kubectl", "exec"]:
            pods = self.releases["warren"]
            end = words.index(">") if ">" in words else len(words)
            output = pods.run(words[2], *words[4:end])
            if end < len(words):
                (self._folder / words[-1]).write_text(output, encoding="utf-8")
            return output
        assert words[0] == "helm" and words[3] == "deploy/chart", line
        values = [
            str(self._folder / word) if word.endswith(".yaml") else word
            for word in words[4:]
            if word not in ("--wait", "--reuse-values")
        ]
        if words[1] == "install":
            name = words[2] if "warren" in words[2] else f"{words[2]}-warren"
            objects = Rendered(words[2], *values)
            self.releases[words[2]] = Pods(objects, self._folder / "nodes", name, 5)
        else:
            self.releases[words[2]].objects.upgrade(*values)
        return ""

    def install(self) -> None:
        """Install; the founders meet, and one alone is alive and not ready."""
        self.of("Install", "helm install")
        warren = self.releases["warren"]
        warren.start("warren-2")
        warren.wait_for("warren-2", "startupProbe")
        assert warren.passes("warren-2", "livenessProbe"), "alive without a majority"
        assert not warren.passes("warren-2", "readinessProbe"), "not ready without a majority"
        warren.start_all(["warren-0", "warren-1"])
        warren.wait_for("warren-2", "readinessProbe")
        (tested,) = self.of("Install", "helm test")
        assert "published and read one message" in tested, tested
        (listed,) = self.of("Install", "kubectl exec")
        assert listed.count("running") == 3, listed
        proved(
            "1 of 3 nodes is alive and not ready; 3 form a cluster; helm test reads what it wrote"
        )

    def grow(self) -> None:
        """Grow to five nodes, without a change of the pods that run."""
        warren = self.releases["warren"]
        warren.run("warren-0", "warren", "queues", "declare", "kept")
        before = warren.objects.pod("warren-0")
        self.of("Grow", "helm upgrade")
        assert warren.objects.pod("warren-0") == before, "growing would restart pods"
        warren.start_all(["warren-3", "warren-4"])
        listed = self.of("Grow", "kubectl exec")[0]
        assert listed.count("running") == 5, listed
        proved("2 nodes join and get members of queues; no pod would be restarted for that")

    def with_tls(self) -> None:
        """Take the definitions to a second cluster, with TLS everywhere."""
        self.of("Users, queues and policies", "kubectl exec")
        self.of("Users, queues and policies", "helm install")
        orders = self.releases["orders"]
        places = ",".join(f"IP:{address}" for address in orders.addresses.values())
        authority = Authority(self._folder / "authority")
        made = authority.issue("orders", san=places)
        files = {"tls.crt": made.cert, "tls.key": made.key, "ca.crt": authority.cert}
        definitions = self._folder / "definitions.json"
        orders.objects.add_secrets(
            {
                "warren": self.releases["warren"].objects.get("Secret", "warren")["data"],
                "warren-tls": {name: _encoded(path) for name, path in files.items()},
                "warren-definitions": {definitions.name: _encoded(definitions)},
            }
        )
        orders.start_all(list(orders.addresses)[:3])
        (tested,) = self.of("Users, queues and policies", "helm test")
        assert "published and read one message" in tested, tested
        orders.end_all()
        proved(
            "3 nodes with TLS among them, and definitions of the first cluster: helm test passes"
        )

    def shrink(self) -> None:
        """Shrink by one node."""
        first, forget = (line for line in page.commands("Shrink") if "kubectl exec" in line)
        self.run(first)
        warren = self.releases["warren"]
        warren.stop("warren-4")
        self.of("Shrink", "helm upgrade")
        self.run(forget)
        listed = warren.run("warren-0", "warren", "nodes", "list")
        assert listed.count("running") == 4 and "warren-4" not in listed, listed
        proved("the last node leaves, and is forgotten")

    def upgrade(self) -> None:
        """Replace the nodes one by one, as the kubelet does."""
        warren = self.releases["warren"]
        before = warren.objects.pod("warren-0")
        self.of("Upgrade", "helm upgrade")
        assert warren.objects.pod("warren-0") != before
        for name in ("warren-3", "warren-2", "warren-1", "warren-0"):
            warren.stop(name)
            warren.start_all([name])
        warren.run("warren-0", "warren", "queues", "show", "kept")
        proved("each node drains before it stops, and is ready again")


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _sets(values: Sequence[str]) -> list[str]:
    return [part for value in values for part in ("--set", value)]


def main() -> int:
    """Build what is missing, run the checks; return the exit code."""
    began = time.monotonic()
    try:
        programs.ensure()
    except programs.NotBuilt as error:
        console.say(f" ✗ {error}")
        return 1
    static_checks()
    combinations()
    with contextlib.ExitStack() as ends, tempfile.TemporaryDirectory() as made:
        walk = Walk(Path(made))
        ends.callback(lambda: [pods.end_all() for pods in walk.releases.values()])
        walk.install()
        walk.grow()
        walk.with_tls()
        walk.shrink()
        walk.upgrade()
    console.say(f"the chart's nodes form a cluster, {console.took(began)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
