"""What Kubernetes does with releases of other values; their pods are never more than objects."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from chart import page
from chart.control_plane import NODES, ControlPlane, wait_until
from chart.pods import Pods
from chart.rollout import Rollout
from chart.walk import helm_test, proved, zones

CHART = str(page.CHART)
WAIT = ("--wait", "--timeout=120s")
LONGEST = "w" * 53
"""The longest name that Helm takes for a release."""


class Releases:
    """One release after the other, in the namespace that other releases use, too."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder

    def pods(self, release: str) -> list[dict[str, Any]]:
        """Return a release's pods."""
        selector = f"app.kubernetes.io/name=warren,app.kubernetes.io/instance={release}"
        found: list[dict[str, Any]] = self._plane.list("pods", selector)["items"]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def install(self, release: str, *values: str, wait: bool = True) -> None:
        """Install a release."""
        self._plane.run(
            "helm",
            "install",
            release,
            CHART,
            *sets(values),
            *(WAIT if wait else ()),
        )

    def upgrade(self, release: str, *values: str) -> None:
        """Upgrade a release, and wait."""
        self._plane.run(*_upgrade(release, *values), *WAIT)

    def remove(self, release: str) -> None:
        """Uninstall a release with its volumes and Secret."""
        self._plane.run("helm", "uninstall", release, "--wait")
        mine = ("-l", f"app.kubernetes.io/instance={release}")
        self._plane.run("kubectl", "delete", "pvc,secret", *mine)

    def budget(self) -> None:
        """Drain machines: the budget lets one pod go at a time, a second one has to wait."""
        self.install("warren")
        assert zones(self.pods("warren")) == ["a", "b", "c"], self.pods("warren")
        budget = self._plane.get("pdb", "warren")["status"]
        assert (budget["expectedPods"], budget["disruptionsAllowed"]) == (3, 1), budget
        self._plane.run("kubectl", "cordon", *NODES)
        self._evict("warren-0")
        refused = self._evict("warren-1", refused=True)
        assert "disruption budget" in refused, refused
        wait_until(lambda: "unschedulable" in self._pending("warren"), "warren-0 is made again")
        assert "disruption budget" in self._evict("warren-1", refused=True), "it is not ready"
        with Rollout(self._plane, "warren") as rollout:
            self._plane.run("kubectl", "uncordon", *NODES)
            wait_until(lambda: self._allowed() == 1, "all are ready")
            self._evict("warren-1")
            rollout.finished(1)
        assert rollout.replaced == ["warren-1"], rollout.replaced
        proved("installs into 3 zones; eviction of a second pod is refused until the first is back")

    def _allowed(self) -> int:
        return int(self._plane.get("pdb", "warren")["status"]["disruptionsAllowed"])

    def _evict(self, pod: str, *, refused: bool = False) -> str:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": "default"},
        }
        path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
        ask = self._plane.refused if refused else self._plane.run
        return ask("kubectl", "create", "--raw", path, "-f", "-", given=json.dumps(eviction))

    def changes(self) -> None:
        """Refuse what would break a cluster; an upgrade stops at a pod that does not start."""
        refused = {
            "auth.password=another": "Change the login",
            "persistence.size=30Gi": "Enlarge volumes",
            "replicas=1": "from 3 to 1",
        }
        for values, named in refused.items():
            told = self._plane.refused(*_upgrade("warren", values))
            assert named in told, (values, told)
        with Rollout(self._plane, "warren") as rollout:
            stuck = _upgrade("warren", "nodeSelector.disk=none", "definitions.data.users=5")
            told = self._plane.refused(*stuck, "--wait", "--timeout=15s")
            assert "warren" in told and len(rollout.replaced) == 1, (told, vars(rollout))
            why = Pods(self._plane, self._folder, "warren", 3).check("warren-2")
            assert "definitions: Expected `array`" in why, why
            self._plane.run("helm", "rollback", "warren")
            self._plane.run("kubectl", "delete", "pod", "warren-2")
            wait_until(lambda: self._allowed() == 1, "warren-2 is back")
        assert set(rollout.replaced) == {"warren-2"} and rollout.ready_min == 2, vars(rollout)
        self._plane.run("kubectl", "scale", "statefulset/warren", "--replicas=0")
        wait_until(lambda: not self.pods("warren"), "all pods are stopped")
        secure = ("tls.enabled=true", "tls.existingSecret=mine", "tls.betweenNodes=true")
        self.upgrade("warren", *secure)
        assert len(self.pods("warren")) == 3
        proved(
            f"{len(refused)} changes refused; an upgrade stops at a pod that does not start, "
            "a rollback mends it"
        )

    def neighbours(self) -> None:
        """Put other releases beside one: names, Services and budgets are apart."""
        self.install(LONGEST, "replicas=5", "spread.zones=required")
        pods = self.pods(LONGEST)
        machines = {pod["spec"]["nodeName"] for pod in pods}
        assert len(pods) == len(machines) == 5, machines
        assert zones(pods) in (["a", "a", "b", "b", "c"], ["a", "a", "b", "c", "c"], [*"abbcc"])
        self._has("warren", self.pods("warren"))
        self._has(LONGEST[:50], pods)
        same = self._plane.refused("helm", "install", LONGEST[:52], CHART, *sets(("replicas=5",)))
        assert "invalid ownership metadata" in same, same
        self.remove(LONGEST)
        proved("a name of 53 characters, 5 pods on 5 machines; no Service has another's pods")

    def _has(self, service: str, pods: list[dict[str, Any]]) -> None:
        wanted = {pod["metadata"]["name"] for pod in pods}
        for name in (service, f"{service}-nodes"):
            wait_until(partial(self._behind, name, wanted), f"{name} has just {wanted}")

    def _behind(self, service: str, wanted: set[str]) -> bool:
        slices = self._plane.get("endpointslices", "-l", f"kubernetes.io/service-name={service}")
        ends = [end for one in slices for end in one["endpoints"] or ()]
        return {end["targetRef"]["name"] for end in ends} == wanted

    def places(self) -> None:
        """Let the scheduler choose where there is too little room."""
        self.install("full", "replicas=7", wait=False)
        wait_until(lambda: len(zones(self.pods("full"))) == len(NODES), "one pod per machine")
        wait_until(lambda: "anti-affinity" in self._pending("full"), "the seventh has no place")
        self.remove("full")
        self.install("full", "replicas=7", "spread.hosts=preferred")
        self.remove("full")
        closed = [name for name, zone in NODES.items() if zone == "c"]
        self._plane.run("kubectl", "cordon", *closed)
        self.install("zones", "spread.zones=required", wait=False)
        wait_until(lambda: "topology spread" in self._pending("zones"), "one waits for zone c")
        assert zones(self.pods("zones")) == ["a", "b"], self.pods("zones")
        self.remove("zones")
        self.install("zones")
        assert zones(self.pods("zones")) in (["a", "a", "b"], ["a", "b", "b"])
        self._plane.run("kubectl", "uncordon", *closed)
        self.remove("zones")
        proved("a pod waits where its machine or zone is `required`, and not where `preferred`")

    def _pending(self, release: str) -> str:
        told = [
            condition.get("message", "")
            for pod in self.pods(release)
            for condition in pod["status"].get("conditions", ())
        ]
        return " ".join(told)

    def operators(self) -> None:
        """Install what needs other operators, with Secrets that others made."""
        login = ("cluster-secret=a", "username=me", "password=b")
        made = (f"--from-literal={one}" for one in login)
        self._plane.run("kubectl", "create", "secret", "generic", "mine", *made)
        self.install(
            "warren-one",
            *("replicas=1", "auth.existingSecret=mine", "serviceMonitor.enabled=true"),
            *("tls.enabled=true", "tls.certManager.issuer=authority", "definitions.key=all.json"),
            'definitions.data.users[0].name=me,definitions.data.users[0].tags="administrator"',
            "networkPolicy.clients[0].podSelector.matchLabels.app=shop",
        )
        asked = self._plane.get("certificates.cert-manager.io", "warren-one")["spec"]
        pod = self._plane.get("pod", "warren-one-0")["spec"]
        (config,) = (one["projected"] for one in pod["volumes"] if one["name"] == "config")
        names = [next(iter(one.values()))["name"] for one in config["sources"]]
        assert names == ["warren-one", "warren-one-definitions", asked["secretName"]], names
        defined = self._plane.get("configmap", "warren-one-definitions")["data"]["all.json"]
        assert json.loads(defined)["users"][0]["name"] == "me", defined
        assert not self._plane.tried("kubectl", "get", "secret", "warren-one").stdout
        watched = self._plane.get("servicemonitors.monitoring.coreos.com", "warren-one")["spec"]
        (service,) = self._plane.list("services", _selector(watched["selector"]))["items"]
        ports = {port["name"] for port in service["spec"]["ports"]}
        assert {one["port"] for one in watched["endpoints"]} <= ports, ports
        assert helm_test(self._plane, "warren-one", "warren-one-test", self._is_let_in)
        assert not helm_test(self._plane, "warren-one", "warren-one-test", lambda _: False)
        self._plane.run("kubectl", "delete", "pod", "warren-one-test")
        self._plane.run("helm", "uninstall", "warren-one", "--wait")
        self._plane.get("secret", "mine")
        self._plane.get("crd", "servicemonitors.monitoring.coreos.com")
        proved("cert-manager's Certificate, ServiceMonitor, Secrets of others; helm test can fail")

    def _is_let_in(self, client: dict[str, Any]) -> bool:
        """Return whether the NetworkPolicy with `clients` lets a pod and the nodes connect."""
        policy = self._plane.get("networkpolicy", "warren-one")["spec"]
        let = [one["podSelector"] for one in policy["ingress"][1]["from"]]
        found = [
            {pod["metadata"]["name"] for pod in self._plane.list("pods", _selector(one))["items"]}
            for one in let
        ]
        return {client["metadata"]["name"], "warren-one-0"} == found[0] and not found[1]


def _selector(told: dict[str, Any]) -> str:
    parts = [f"{key}={value}" for key, value in told.get("matchLabels", {}).items()]
    for one in told.get("matchExpressions", ()):
        parts.append(f"{one['key']} in ({','.join(one['values'])})")
    return ",".join(parts)


def _upgrade(release: str, *values: str) -> list[str]:
    return ["helm", "upgrade", release, CHART, "--reuse-values", *sets(values)]


def sets(values: tuple[str, ...]) -> list[str]:
    """Return the arguments with which Helm takes values; what is no value stays as it is."""
    parts = [(one,) if one.startswith("--") else ("--set", one) for one in values]
    return [word for part in parts for word in part]
