"""Kubernetes without machines: etcd, API server, controllers, scheduler, and kwok for kubelets."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from chart import programs
from tests.patience import PATIENCE_S

TOKEN = "of-this-run"
NODES = {f"machine-{number}": "abc"[number % 3] for number in range(6)}
"""Machine → zone."""
VOLUMES = 80


class ControlPlane:
    """The processes, all on loopback, with their files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._etcd, self._etcd_peers = (_free_port() for _ in range(3))
        self.kubeconfig = folder / "kubeconfig"
        self._processes: list[subprocess.Popen[bytes]] = []

    def environment(self) -> dict[str, str]:
        """Return the environment for kubectl and Helm."""
        home = str(self.folder)
        path = f"{programs.BIN}{os.pathsep}{os.environ['PATH']}"
        return {"PATH": path, "HOME": home, "KUBECONFIG": str(self.kubeconfig)}

    def start(self) -> None:
        """Start everything, with machines and volumes."""
        key = self.folder / "accounts.key"
        subprocess.run(
            ["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True
        )
        (self.folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        self.kubeconfig.write_text(json.dumps(self._access()))
        etcd, peers = (f"http://127.0.0.1:{port}" for port in (self._etcd, self._etcd_peers))
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=192.0.2.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self.port}",
            f"--cert-dir={self.folder / 'certificates'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
        )
        wait_until(self._answers, "the API server answers")
        own = f"--kubeconfig={self.kubeconfig}"
        alone = ("--leader-elect=false", "--secure-port=0")
        accounts = f"--service-account-private-key-file={key}"
        self._run("kube-controller-manager", own, accounts, *alone)
        self._run("kube-scheduler", own, *alone)
        end = self.folder / "end.json"
        end.write_text(json.dumps(END))
        fakes = (f"--config={path}" for path in (*programs.stages(), end))
        self._run("kwok", own, "--manage-all-nodes", "--node-lease-duration-seconds=40", *fakes)
        account = ("kubectl", "get", "serviceaccount", "default")
        wait_until(lambda: self.tried(*account).returncode == 0, "the controllers work")
        self.apply([*map(_machine, NODES), STORAGE, *map(self._volume, range(VOLUMES))])

    def stop(self) -> None:
        """End the processes."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def apply(self, objects: list[dict[str, Any]]) -> None:
        """Create or change objects."""
        made = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.run("kubectl", "apply", "-f", "-", given=made)

    def tried(self, *command: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl, Helm or kube-score; return what became of it."""
        env = self.environment()
        return subprocess.run(
            command, input=given, env=env, capture_output=True, text=True, check=False
        )

    def run(self, *command: str, given: str | None = None) -> str:
        """Run a command, which must succeed; return its output."""
        done = self.tried(*command, given=given)
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr or done.stdout}"
        return done.stdout

    def refused(self, *command: str, given: str | None = None) -> str:
        """Run a command, which must fail; return why it did."""
        done = self.tried(*command, given=given)
        assert done.returncode != 0, f"{' '.join(command)}: {done.stdout}"
        return done.stderr

    def get(self, *what: str) -> Any:
        """Return one object, or a list's items."""
        found = json.loads(self.run("kubectl", "get", *what, "-o", "json"))
        return found["items"] if found["kind"] == "List" else found

    def path(self, resource: str, selector: str) -> str:
        """Return the path of a core resource's objects with these labels."""
        return f"/api/v1/namespaces/default/{resource}?labelSelector={quote(selector)}"

    def list(self, resource: str, selector: str) -> Any:
        """Return these objects as the API server's list, which has a version."""
        return json.loads(self.run("kubectl", "get", "--raw", self.path(resource, selector)))

    def _run(self, name: str, *arguments: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            command = [str(programs.BIN / name), *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        self._processes.append(process)

    def _answers(self) -> bool:
        assert all(one.poll() is None for one in self._processes), f"see the logs in {self.folder}"
        trusting = ssl._create_unverified_context()
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}/readyz", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5, context=trusting):
                return True
        except OSError:
            return False

    def _access(self) -> dict[str, Any]:
        server = {"server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": server}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
            "current-context": "here",
        }

    def _volume(self, number: int) -> dict[str, Any]:
        spec = {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "hostPath": {"path": str(self.folder / f"volume-{number}")},
        }
        name = f"volume-{number}"
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": spec,
        }


END = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "end"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {
            "matchExpressions": [
                {"key": ".metadata.deletionTimestamp", "operator": "Exists"},
                {
                    "key": ".metadata.deletionGracePeriodSeconds",
                    "operator": "NotIn",
                    "values": ["0"],
                },
            ]
        },
        "delay": {"durationMilliseconds": 1000},
        "next": {"delete": True},
    },
}
"""What kwok does to a deleted pod: it deletes by name, once for each change that it sees. The delay
makes one of several, and its own deletion, without grace, is none: or else it would delete the pod
that is there instead."""
STORAGE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {
        "name": "local",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    },
    "provisioner": "kubernetes.io/no-provisioner",
    "allowVolumeExpansion": True,
    "volumeBindingMode": "WaitForFirstConsumer",
}


def _machine(name: str) -> dict[str, Any]:
    room = {"cpu": "8", "memory": "32Gi", "pods": "20", "ephemeral-storage": "100Gi"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": NODES[name]}
    metadata = {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    status = {"allocatable": room, "capacity": room}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def wait_until(holds: Callable[[], Any], what: str, seconds: float = PATIENCE_S) -> None:
    """Wait until something holds; fail when it does not in time."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.2)


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
