"""The commands of the page about Kubernetes, in order, with nodes beside the pods."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from chart import page
from chart.control_plane import NODES, ControlPlane, wait_until
from chart.pods import Pods
from chart.rollout import Rollout
from tests.certificates import Authority
from tests.patience import PATIENCE_S
from tools import console


def proved(text: str) -> None:
    """Print what was shown."""
    console.say(f" ✓ {text}")


def helm_test(
    plane: ControlPlane, release: str, name: str, run: Callable[[dict[str, Any]], bool]
) -> bool:
    """Run `helm test`, and what its pod does as the kubelet would; return whether Helm is content.

    run  does what the pod is for, and returns whether that worked
    """
    command, env = ["helm", "test", release], plane.environment()
    helm = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: _phase(plane, name) == "Running", f"{name} runs")
    phase = "Succeeded" if run(plane.get("pod", name)) else "Failed"
    status = f'{{"status": {{"phase": "{phase}"}}}}'
    plane.run("kubectl", "patch", "pod", name, "--subresource=status", "--patch", status)
    return helm.wait(PATIENCE_S) == 0


def _phase(plane: ControlPlane, pod: str) -> str:
    return plane.run(
        *("kubectl", "get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.status.phase}")
    )


class Walk:
    """The page's commands, with pods that run here."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self.pods = {
            "warren": Pods(plane, folder / "nodes", "warren", 5),
            "orders": Pods(plane, folder / "nodes", "orders-warren", 3),
        }
        for name, text in page.files().items():
            (folder / name).write_text(text, encoding="utf-8")

    def follow(self, section: str) -> Iterator[tuple[str, str]]:
        """Run a section's commands; yield each with its output."""
        for line in page.commands(section):
            yield line, self.run(line)

    def run(self, line: str) -> str:
        """Run one command; what needs a kubelet runs beside the pod."""
        words = shlex.split(line.replace("deploy/chart", str(page.CHART)))
        if words[:2] == ["helm", "test"]:
            return self._test(words[2])
        if words[:2] == ["kubectl", "exec"]:
            end = words.index(">") if ">" in words else len(words)
            output = self.pods["warren"].run(words[2], *words[4:end])
            if end < len(words):
                (self._folder / words[-1]).write_text(output, encoding="utf-8")
            return output
        done = subprocess.run(
            words,
            cwd=self._folder,
            env=self._plane.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        return done.stdout

    def _test(self, release: str) -> str:
        pods, outputs = self.pods[release], []

        def run(pod: dict[str, Any]) -> bool:
            outputs.append(pods.run_test(pod))
            return "published and read one message" in outputs[0]

        assert helm_test(self._plane, release, f"{pods.name}-test", run), outputs
        return outputs[0]

    def install(self) -> None:
        """Install; the founders meet, and one alone is alive and not ready."""
        steps = self.follow("Install")
        next(steps)
        warren = self.pods["warren"]
        warren.start("warren-2")
        warren.wait_for("warren-2", "startupProbe")
        assert warren.passes("warren-2", "livenessProbe"), "alive without a majority"
        assert not warren.passes("warren-2", "readinessProbe"), "not ready without a majority"
        warren.start_all(["warren-0", "warren-1"])
        warren.wait_for("warren-2", "readinessProbe")
        next(steps)
        (_, listed), (_, login) = steps
        assert listed.count("running") == 3, listed
        assert login.startswith("warren ") and len(login.split()[1]) == 32, login
        proved(
            "1 of 3 nodes is alive and not ready; 3 form a cluster; helm test reads what it wrote"
        )

    def grow(self) -> None:
        """Grow to five nodes; the others are not restarted."""
        self.pods["warren"].run("warren-0", "warren", "queues", "declare", "kept")
        with Rollout(self._plane, "warren") as rollout:
            steps = self.follow("Grow")
            next(steps)
            assert not rollout.replaced and rollout.ready_min == 3, vars(rollout)
        self.pods["warren"].start_all(["warren-3", "warren-4"])
        outputs = [output for _, output in steps]
        assert outputs[0].count("running") == 5, outputs[0]
        proved("grows to 5: two nodes join and get members of queues, no pod is restarted")

    def with_tls(self) -> None:
        """Take the definitions to a second cluster, with TLS everywhere."""
        orders = self.pods["orders"]
        places = ",".join(f"IP:{address}" for address in orders.addresses.values())
        authority = Authority(self._folder / "authority")
        made = authority.issue("orders", san=places)
        files = {"tls.crt": made.cert, "tls.key": made.key, "ca.crt": authority.cert}
        for name, path in files.items():
            (self._folder / name).write_bytes(path.read_bytes())
        list(self.follow("TLS"))
        for line, _ in self.follow("Users, queues and policies"):
            if line.startswith("helm install"):
                orders.start_all(list(orders.addresses))
        orders.end_all()
        self._plane.run("helm", "uninstall", "orders", "--wait")
        held = self._plane.run("kubectl", "get", "secret", "-o", "name")
        assert "secret/warren-tls" in held and "secret/warren-definitions" in held, held
        proved("a second release in the namespace, with TLS and the definitions of the first one")

    def shrink(self) -> None:
        """Shrink by one node."""
        for line, _ in self.follow("Shrink"):
            if line.startswith("helm upgrade"):
                wait_until(lambda: not _phase(self._plane, "warren-4"), "warren-4 is removed")
                self.pods["warren"].stop("warren-4")
        listed = self.pods["warren"].run("warren-0", "warren", "nodes", "list")
        assert listed.count("running") == 4 and "warren-4" not in listed, listed
        claims = self._plane.run("kubectl", "get", "pvc", "-o", "name")
        assert "data-warren-3" in claims and "data-warren-4" not in claims, claims
        proved("shrinks to 4: the node is forgotten, its claim of a volume deleted")

    def enlarge(self) -> None:
        """Enlarge the volumes; no pod is replaced."""
        with Rollout(self._plane, "warren") as rollout:
            list(self.follow("Enlarge volumes"))
        assert not rollout.replaced and rollout.ready_min == 4, vars(rollout)
        (claim,) = self._plane.get("statefulset", "warren")["spec"]["volumeClaimTemplates"]
        assert claim["spec"]["resources"]["requests"]["storage"] == "40Gi", claim
        proved("enlarges the claims of volumes, without a restart")

    def upgrade(self) -> None:
        """Replace the pods one by one, and the nodes as the kubelet would."""
        with Rollout(self._plane, "warren") as rollout:
            list(self.follow("Upgrade"))
            rollout.finished(4)
        self._restart(rollout)
        proved("helm upgrade replaces one pod at a time, the highest first; each node drains")

    def change_login(self) -> None:
        """Give the pods another user, and delete the one that they had."""
        with Rollout(self._plane, "warren") as rollout:
            for line, _ in self.follow("Change the login"):
                if line.startswith("kubectl rollout status"):
                    rollout.finished(4)
                    self._restart(rollout)
        listed = self.pods["warren"].run("warren-0", "warren", "users", "list")
        assert "operator" in listed and "warren" not in listed, listed
        self._test("warren")
        proved("another user in the Secret: each node still drains, and helm test uses the new one")

    def _restart(self, rollout: Rollout) -> None:
        warren, names = self.pods["warren"], [f"warren-{number}" for number in (3, 2, 1, 0)]
        assert rollout.replaced == names and rollout.ready_min == 3, vars(rollout)
        for name in names:
            warren.stop(name)
            warren.start_all([name])
        warren.run("warren-0", "warren", "queues", "show", "kept")

    def uninstall(self) -> None:
        """Remove the release; what it leaves is enough to continue with."""
        warren = self.pods["warren"]
        before = self._plane.get("secret", "warren")["data"]
        warren.end_all()
        uninstall, left, *removal = page.commands("Uninstall")
        self.run(uninstall)
        held = self.run(left)
        assert all(f"data-warren-{number}" in held for number in range(4)), held
        kinds = "pods,statefulsets,services,configmaps,poddisruptionbudgets,networkpolicies"
        mine = ("-l", "app.kubernetes.io/instance=warren", "-o", "name")
        rest = self._plane.run("kubectl", "get", f"{kinds},serviceaccounts", *mine)
        assert not rest, rest
        self.run(page.commands("Install")[0] + " --set replicas=4")
        assert self._plane.get("secret", "warren")["data"] == before
        warren.start_all([f"warren-{number}" for number in range(4)])
        warren.run("warren-0", "warren", "queues", "show", "kept")
        warren.end_all()
        self.run(uninstall)
        for line in removal:
            self.run(line)
        assert not self._plane.get("pvc", "-l", "app.kubernetes.io/instance=warren")
        proved("uninstall leaves volumes and Secrets alone; an installation continues with them")


def zones(pods: list[dict[str, Any]]) -> list[str]:
    """Return the zones where pods are, sorted."""
    return sorted(NODES[pod["spec"]["nodeName"]] for pod in pods if pod["spec"].get("nodeName"))
