"""`build.py chart`: the Helm chart, in a real API server and with real nodes.

1. `helm lint --strict`, kube-score, and values that the schema and the chart refuse.
2. The API server judges every combination of values, also the objects of cert-manager and of the
   Prometheus operator.
3. Releases on machines without kubelets (kwok says that pods are ready): where the scheduler puts
   pods, evictions, upgrades, neighbours.
4. The commands of the page about Kubernetes run in order. Beside the pods their nodes run as
   processes on loopback, with the pods' environments, files, probes and hooks: `kubectl exec` and
   `helm test` reach them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import tempfile
import time
from pathlib import Path

from chart import page, programs
from chart.control_plane import ControlPlane
from chart.releases import Releases, sets
from chart.walk import Walk, proved
from tools import console

CHART = str(page.CHART)
SCORE_EXCEPTIONS = {
    "container-image-pull-policy": "a release's tag never changes, so it is pulled once",
    "container-resources: CPU limit is not set": "throttled, a node would miss its heartbeats",
    "warren-test: pod-networkpolicy": "nothing calls the client of `helm test`",
}
"""What kube-score calls critical and the chart does on purpose, each with its reason."""
REFUSED = {
    ("warren", ("replicas=0",)): "replicas",
    ("warren", ("tls.enabled=true",)): "tls",
    ("warren", ("tls.betweenNodes=true",)): "tls",
    ("warren", ("resources.limits.memory=2G",)): "memory",
    ("warren", ("persistence.size=0Gi",)): "size",
    ("warren", ("persistence.enabled=false",)): "enabled",
    ("warren", ("auth.password=a@b",)): "password",
    ("warren", ("replica=3",)): "replica",
    ("warren", ("definitions.existingSecret=a", "definitions.existingConfigMap=b")): "definitions",
    ("warren", ("definitions.data.users[0].name=warren",)): "the tag administrator",
    ("1st", ()): "begin with a letter",
    ("a.b", ()): "have no dot",
}
"""Releases and values that are refused → what the text names."""
POD_SECURITY = "pod-security.kubernetes.io/enforce"
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
        "definitions.data.users[0].name=warren,definitions.data.users[0].tags[0]=administrator,"
        "spread.hosts=none,spread.zones=none,listen=::",
    ),
)


def static_checks(plane: ControlPlane) -> None:
    """Lint, score, and the schema."""
    plane.run("helm", "lint", "--strict", CHART)
    used: set[str] = set()
    scored_values: tuple[tuple[str, ...], ...] = ((), (MATRIX[1][3], MATRIX[2][1]))
    for values in scored_values:
        scored = plane.tried(
            *("kube-score", "score", "--output-format=json", "--kubernetes-version=v1.37", "-"),
            given=plane.run("helm", "template", "warren", CHART, *sets(values)),
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
    for (release, values), named in REFUSED.items():
        told = plane.refused("helm", "template", release, CHART, *sets(values))
        assert named in told, (values, told)
    proved(
        f"helm lint --strict; kube-score without criticals ({len(used)} exceptions); "
        f"{len(REFUSED)} wrong values refused"
    )


def combinations(plane: ControlPlane) -> None:
    """Let the API server judge every combination of values."""
    for path in programs.definitions():
        plane.run("kubectl", "create", "-f", str(path))
    plane.run("kubectl", "wait", "--for=condition=established", "crd", "--all", "--timeout=60s")
    place = plane.folder / "combinations"
    place.mkdir()
    for values in itertools.product(*MATRIX):
        rendered = plane.run("helm", "template", "warren", CHART, *sets(values))
        (place / f"{' '.join(values)}.yaml").write_text(rendered, encoding="utf-8")
    strict = ("--dry-run=server", "--validate=strict", "-f", str(place))
    accepted = plane.run("kubectl", "apply", *strict).splitlines()
    plane.run("kubectl", "label", "namespace", "default", f"{POD_SECURITY}=restricted")
    proved(f"{len(accepted)} objects of {len(list(place.iterdir()))} combinations are valid")


def main() -> int:
    """Build what is missing, run the checks; return the exit code."""
    began = time.monotonic()
    try:
        programs.ensure()
    except programs.NotBuilt as error:
        console.say(f" ✗ {error}")
        return 1
    with contextlib.ExitStack() as ends, tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        (folder / "plane").mkdir()
        plane = ControlPlane(folder / "plane")
        static_checks(plane)
        ends.callback(plane.stop)
        plane.start()
        combinations(plane)
        releases = Releases(plane, folder / "nodes")
        releases.budget()
        releases.changes()
        releases.neighbours()
        releases.remove("warren")
        releases.places()
        releases.operators()
        walk = Walk(plane, folder)
        for pods in walk.pods.values():
            ends.callback(pods.end_all)
        walk.install()
        walk.grow()
        walk.with_tls()
        walk.shrink()
        walk.enlarge()
        walk.upgrade()
        walk.change_login()
        walk.uninstall()
    console.say(f"the chart works with Kubernetes {programs.KUBERNETES}, {console.took(began)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
