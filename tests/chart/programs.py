"""Kubernetes, etcd, kwok, Helm and kube-score, built from Go modules into `.warren/kube`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tools import console
from tools.environment import LOGS, STATE

PLACE = STATE / "kube"
BIN = PLACE / "bin"
KUBERNETES = "1.37.2"
KWOK = "sigs.k8s.io/kwok"
MODULES = {
    "k8s.io/kubernetes": f"v{KUBERNETES}",
    "go.etcd.io/etcd/server/v3": "v3.7.3",
    "helm.sh/helm/v4": "v4.3.2",
    KWOK: "v0.8.0",
}
PROGRAMS = {
    "helm": "helm.sh/helm/v4/cmd/helm",
    "etcd": "go.etcd.io/etcd/server/v3",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kwok": "sigs.k8s.io/kwok/cmd/kwok",
}
VERSION = "k8s.io/component-base/version"
FLAGS = (
    "-trimpath",
    f"-ldflags=-s -w -X {VERSION}.gitVersion=v{KUBERNETES}"
    f" -X {VERSION}.gitMajor=1 -X {VERSION}.gitMinor={KUBERNETES.split('.')[1]}",
)
"""Kubernetes' programs are told their version: the chart asks for one, and Helm compares."""
SCORE = "github.com/zegl/kube-score/cmd/kube-score@v1.20.0"
"""Not with the others: it needs an older version of Kubernetes' types."""
DEFINITIONS = {
    "github.com/cert-manager/cert-manager@v1.21.2": "deploy/crds/cert-manager.io_certificates.yaml",
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"
    ),
}
"""Modules with the schemas of what the chart makes for operators."""
STAGES = (
    *("node/fast/node-initialize", "node/heartbeat-with-lease/node-heartbeat-with-lease"),
    "pod/fast/pod-ready",
)
"""What kwok does to nodes and pods: they are ready at once."""


class NotBuilt(Exception):
    """A program cannot be built here; the text says why, and what to do."""


def ensure() -> None:
    """Build what is missing; about 25 minutes of processor time at first."""
    for name, what in {"go": "Go 1.26 or newer", "openssl": "OpenSSL"}.items():
        if shutil.which(name) is None:
            raise NotBuilt(f"no `{name}`: install {what}")
    stamp, wanted = PLACE / "versions", repr((MODULES, FLAGS, SCORE))
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(BIN, ignore_errors=True)
        _write_module()
        stamp.write_text(wanted, encoding="utf-8")
    missing = [name for name in (*PROGRAMS, "kube-score") if not (BIN / name).exists()]
    if missing:
        console.say(f"   to be built from Go modules: {', '.join(missing)}")
    for name in missing:
        if name == "kube-score":
            _go(f"building {name}", "install", *FLAGS, SCORE)
        else:
            made = BIN / f"{name}.made"
            _go(f"building {name}", "build", "-mod=mod", *FLAGS, "-o", str(made), PROGRAMS[name])
            made.replace(BIN / name)


def definitions() -> list[Path]:
    """Return the files with the schemas of cert-manager's and Prometheus' objects."""
    return [_module(name) / path for name, path in DEFINITIONS.items()]


def stages() -> list[Path]:
    """Return kwok's own files about nodes and pods."""
    place = _module(f"{KWOK}@{MODULES[KWOK]}") / "kustomize" / "stage"
    return [place / f"{name}.yaml" for name in STAGES]


def _module(name: str) -> Path:
    done = subprocess.run(
        ["go", "mod", "download", "-json", name], cwd=PLACE, capture_output=True, check=False
    )
    found = json.loads(done.stdout or "{}")
    if "Dir" not in found:
        raise NotBuilt(f"{name}: {found.get('Error') or done.stderr.decode()}")
    return Path(found["Dir"])


def _write_module() -> None:
    """Write the module of which the programs are built.

    Kubernetes' own module has its libraries beside it, in the repository; as modules they have its
    version with 0 for 1.
    """
    PLACE.mkdir(parents=True, exist_ok=True)
    (PLACE / "go.mod").write_text("module tools\n\ngo 1.26.0\n", encoding="utf-8")
    source = _module(f"k8s.io/kubernetes@{MODULES['k8s.io/kubernetes']}") / "go.mod"
    own = re.findall(r"^\t(k8s\.io/\S+) v0\.0\.0$", source.read_text("utf-8"), re.MULTILINE)
    lines = ["module tools", "", "go 1.26.0", ""]
    lines += [f"require {module} {version}" for module, version in MODULES.items()]
    lines += [f"replace {module} => {module} v0{KUBERNETES[1:]}" for module in own]
    (PLACE / "go.mod").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _go(title: str, *arguments: str) -> None:
    env: dict[str, str] = {**os.environ, "GOBIN": str(BIN), "GOFLAGS": "-buildvcs=false"}
    command: Sequence[str] = ("go", *arguments)
    if not console.quiet(title, command, LOGS / "kube-build.log", env=env, cwd=PLACE):
        raise NotBuilt(f"{title} failed")
