"""Nodes as processes, with the environments and files that their pods would have.

A pod's address is one of the loopback range, with the chart's ports. So the names of pods and of
the Service, and the folders of the image, are the only things that differ from the pods'.
"""

from __future__ import annotations

import base64
import os
import random
import re
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chart.control_plane import ControlPlane, wait_until
from tools.environment import ROOT, SOURCES

FOLDERS = ("/etc/warren", "/var/lib/warren")


class Pods:
    """The pods of a release, with nodes that run here.

    name       of the release's objects
    addresses  of all pods that there may be, from the beginning
    """

    def __init__(self, plane: ControlPlane, folder: Path, name: str, count: int) -> None:
        self._plane = plane
        self._folder = folder
        self.name = name
        net = f"127.{random.randrange(2, 250)}.{random.randrange(250)}"
        self.addresses = {f"{name}-{number}": f"{net}.{number + 1}" for number in range(count)}
        self._pods: dict[str, dict[str, Any]] = {}
        self._variables: dict[str, dict[str, str]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def check(self, name: str) -> str:
        """Write the pod's files; return what `warren-broker check` says against them."""
        pod = self._pods[name] = self._plane.get("pod", name)
        self._write(pod)
        self._variables[name] = self._values(pod)
        done = subprocess.run(
            [sys.executable, "-m", "warren_broker", "check", *self._arguments(pod)[1:]],
            env={**self._environment(name), **self._service_variables()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert bool(done.stderr) == (done.returncode != 0), done
        return done.stderr

    def start(self, name: str) -> None:
        """Check the pod's configuration, start its node."""
        refused = self.check(name)
        assert not refused, refused
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "warren_broker", *self._arguments(self._pods[name])],
                env={**self._environment(name), **self._service_variables()},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def start_all(self, names: Sequence[str]) -> None:
        """Start pods, and wait until each is ready."""
        for name in names:
            self.start(name)
        for name in names:
            self.wait_for(name, "readinessProbe")

    def wait_for(self, name: str, probe: str) -> None:
        """Wait until a probe succeeds."""
        wait_until(lambda: self.passes(name, probe), f"{name}: {probe}; see {self._folder}")

    def stop(self, name: str) -> None:
        """Do what the kubelet does: the hook, then SIGTERM; the node must end by itself.

        Both are of the pod that was started, also where Kubernetes has made another since.
        """
        hook = self._pods[name]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        self.run(name, *hook)
        assert not self.passes(name, "readinessProbe"), f"{name} is drained"
        self.end(name)

    def end(self, name: str) -> None:
        """Send SIGTERM; the node must end by itself."""
        process = self._running.pop(name)
        process.terminate()
        assert process.wait(60) == 0, name

    def end_all(self) -> None:
        """End all, at the end of a run."""
        for process in self._running.values():
            process.terminate()
        for name, process in self._running.items():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                print(f"   {name} had to be killed")
        self._running.clear()

    def passes(self, name: str, probe: str) -> bool:
        """Return whether a probe of the pod succeeds."""
        container = self._pods[name]["spec"]["containers"][0]
        asked = container[probe]
        if "exec" in asked:
            command = [self._here(one, name) for one in asked["exec"]["command"]]
            return subprocess.run(command, check=False).returncode == 0
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        place = f"{self.addresses[name]}:{ports[asked['httpGet']['port']]}"
        try:
            address = f"http://{place}{asked['httpGet']['path']}"
            with urllib.request.urlopen(address, timeout=asked["timeoutSeconds"]) as answer:
                return bool(200 <= answer.status < 400)
        except OSError:
            return False

    def run(self, name: str, *command: str) -> str:
        """Run a command in the pod: with its environment and files; return what it printed."""
        return _run([self._here(one, name) for one in command], self._environment(name))

    def run_test(self, hook: dict[str, Any]) -> str:
        """Run the pod of `helm test`."""
        name, container = hook["metadata"]["name"], hook["spec"]["containers"][0]
        self._write(hook)
        self._variables[name] = self._values(hook)
        return _run([*container["command"], *container["args"]], self._environment(name))

    def _arguments(self, pod: dict[str, Any]) -> list[str]:
        name = pod["metadata"]["name"]
        return [self._here(one, name) for one in pod["spec"]["containers"][0]["args"]]

    def _here(self, text: str, name: str) -> str:
        """Return a text of a pod with the folders and addresses of this machine."""
        for folder in FOLDERS:
            text = text.replace(folder, str(self._folder / name / folder.strip("/")))
        for pod, address in self.addresses.items():
            text = re.sub(rf"\b{pod}\.[a-z0-9-]+-nodes\.[a-z0-9-]+\.svc\b", address, text)
        text = text.replace("0.0.0.0", self.addresses.get(name, "127.0.0.1"))
        return re.sub(rf"\b{self.name}\.[a-z0-9-]+\.svc:([0-9]+)", self._all, text)

    def _all(self, found: re.Match[str]) -> str:
        return ",".join(f"{self.addresses[name]}:{found[1]}" for name in self._running)

    def _write(self, pod: dict[str, Any]) -> None:
        """Write the files of a pod's projected volumes."""
        name, spec = pod["metadata"]["name"], pod["spec"]
        (self._folder / name / "var/lib/warren").mkdir(parents=True, exist_ok=True)
        mounts = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
        for volume in spec["volumes"]:
            for source in volume.get("projected", {}).get("sources", ()):
                ((kind, told),) = source.items()
                data = self._data(kind, told["name"])
                for item in told["items"]:
                    path = Path(self._here(mounts[volume["name"]], name), item["path"])
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.unlink(missing_ok=True)
                    path.write_text(self._here(data[item["key"]], name), encoding="utf-8")
                    path.chmod(0o440)

    def _environment(self, name: str) -> dict[str, str]:
        """Return a pod's environment, with what is its Service now."""
        told = {key: self._here(value, name) for key, value in self._variables[name].items()}
        return told | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in SOURCES),
        }

    def _values(self, pod: dict[str, Any]) -> dict[str, str]:
        """Return the variables of a pod, with what the Secrets hold now."""
        made: dict[str, str] = {}
        for variable in pod["spec"]["containers"][0].get("env", ()):
            made[variable["name"]] = re.sub(
                r"\$\(([A-Z0-9_]+)\)",
                lambda found: made[found[1]],
                self._value(variable, pod),
            )
        return made

    def _value(self, variable: dict[str, Any], pod: dict[str, Any]) -> str:
        source = variable.get("valueFrom")
        if source is None:
            return str(variable.get("value", ""))
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "metadata.name"
            return str(pod["metadata"]["name"])
        secret = source["secretKeyRef"]
        return self._data("secret", secret["name"])[secret["key"]]

    def _data(self, kind: str, name: str) -> dict[str, str]:
        data: dict[str, str] = self._plane.get(kind, name)["data"]
        if kind == "secret":
            return {key: base64.b64decode(value).decode() for key, value in data.items()}
        return data

    def _service_variables(self) -> dict[str, str]:
        """Return what the kubelet sets for the Services, where `enableServiceLinks` is not off."""
        made = {}
        for service in self._plane.get("services"):
            name, spec = service["metadata"]["name"].upper().replace("-", "_"), service["spec"]
            address = spec["clusterIP"]
            if address == "None":
                continue
            made[f"{name}_SERVICE_HOST"] = address
            first = spec["ports"][0]["port"]
            made[f"{name}_SERVICE_PORT"] = str(first)
            made[f"{name}_PORT"] = f"tcp://{address}:{first}"
            for port in spec["ports"]:
                made[f"{name}_SERVICE_PORT_{port['name'].upper()}"] = str(port["port"])
                base = f"{name}_PORT_{port['port']}_TCP"
                made[base] = f"tcp://{address}:{port['port']}"
                made |= {f"{base}_PROTO": "tcp", f"{base}_PORT": str(port["port"])}
                made[f"{base}_ADDR"] = address
        return made


def _run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
    return done.stdout
