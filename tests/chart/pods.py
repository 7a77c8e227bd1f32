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
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chart.rendered import ADDRESS, Rendered
from tests.patience import PATIENCE_S
from tools.environment import ROOT, SOURCES

FOLDERS = ("/etc/warren", "/var/lib/warren")


class Pods:
    """The pods of a release, with nodes that run here.

    names  of all pods that there may be, each with an address of its own from the beginning
    """

    def __init__(self, objects: Rendered, folder: Path, release: str, count: int) -> None:
        self.objects = objects
        self._folder = folder
        self.release = release
        net = f"127.{random.randrange(2, 250)}.{random.randrange(250)}"
        self.addresses = {f"{release}-{number}": f"{net}.{number + 1}" for number in range(count)}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        """Write the pod's files, check its configuration as `warren-broker check`, start it."""
        pod = self.objects.pod(name)
        env, arguments = self._written(pod), self._arguments(pod)
        checked = subprocess.run(
            [sys.executable, "-m", "warren_broker", "check", *arguments[1:]],
            env={**env, **self._service_variables()},
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 0 and not checked.stderr, checked
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "warren_broker", *arguments],
                env={**env, **self._service_variables()},
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
        until = time.monotonic() + PATIENCE_S
        while not self.passes(name, probe):
            assert time.monotonic() < until, f"{name}: {probe} fails; see {self._folder}"
            time.sleep(0.2)

    def stop(self, name: str) -> None:
        """Do what the kubelet does: the hook, then SIGTERM; the node must end by itself."""
        pod = self.objects.pod(name)
        hook = pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
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
        container = self.objects.pod(name)["spec"]["containers"][0]
        asked = container[probe]
        if "exec" in asked:
            command = [self._here(one, name) for one in asked["exec"]["command"]]
            return subprocess.run(command, check=False).returncode == 0
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        place = f"{self.addresses[name]}:{ports[asked['httpGet']['port']]}"
        try:
            address = f"http://{place}{asked['httpGet']['path']}"
            with urllib.request.urlopen(address, timeout=asked["timeoutSeconds"]) as answer:
                return 200 <= answer.status < 400
        except OSError:
            return False

    def run(self, name: str, *command: str) -> str:
        """Run a command in the pod: with its environment and files; return what it printed."""
        env = self._written(self.objects.pod(name))
        return _run([self._here(one, name) for one in command], env)

    def run_test(self, hook: dict[str, Any]) -> str:
        """Run the pod of `helm test`."""
        env = self._written(hook)
        container = hook["spec"]["containers"][0]
        return _run([*container["command"], *container["args"]], env)

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
        return re.sub(rf"\b{self.release}\.[a-z0-9-]+\.svc:([0-9]+)", self._all, text)

    def _all(self, found: re.Match[str]) -> str:
        return ",".join(f"{self.addresses[name]}:{found[1]}" for name in self._running)

    def _written(self, pod: dict[str, Any]) -> dict[str, str]:
        """Write the files of a pod's projected volumes; return its environment."""
        name, spec = pod["metadata"]["name"], pod["spec"]
        (self._folder / name / "var/lib/warren").mkdir(parents=True, exist_ok=True)
        mounts = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
        for volume in spec["volumes"]:
            for source in volume.get("projected", {}).get("sources", ()):
                ((kind, told),) = source.items()
                data = self._data(kind[0].upper() + kind[1:], told["name"])
                for item in told["items"]:
                    path = Path(self._here(mounts[volume["name"]], name), item["path"])
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.unlink(missing_ok=True)
                    path.write_text(self._here(data[item["key"]], name), encoding="utf-8")
                    path.chmod(0o440)
        made = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(str(ROOT / each) for each in SOURCES),
        }
        for variable in spec["containers"][0].get("env", ()):
            value = self._here(self._value(variable, pod), name)
            made[variable["name"]] = re.sub(
                r"\$\(([A-Z0-9_]+)\)", lambda found: made[found[1]], value
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
        return self._data("Secret", secret["name"])[secret["key"]]

    def _data(self, kind: str, name: str) -> dict[str, str]:
        data: dict[str, str] = self.objects.get(kind, name)["data"]
        if kind == "Secret":
            return {key: base64.b64decode(value).decode() for key, value in data.items()}
        return data

    def _service_variables(self) -> dict[str, str]:
        """Return what the kubelet sets for the Services, where `enableServiceLinks` is not off."""
        made = {}
        for service in self.objects.all("Service"):
            name, spec = service["metadata"]["name"].upper().replace("-", "_"), service["spec"]
            if spec.get("clusterIP") == "None":
                continue
            made[f"{name}_SERVICE_HOST"] = ADDRESS
            first = spec["ports"][0]["port"]
            made[f"{name}_SERVICE_PORT"] = str(first)
            made[f"{name}_PORT"] = f"tcp://{ADDRESS}:{first}"
            for port in spec["ports"]:
                made[f"{name}_SERVICE_PORT_{port['name'].upper()}"] = str(port["port"])
                base = f"{name}_PORT_{port['port']}_TCP"
                made[base] = f"tcp://{ADDRESS}:{port['port']}"
                made |= {f"{base}_PROTO": "tcp", f"{base}_PORT": str(port["port"])}
                made[f"{base}_ADDR"] = ADDRESS
        return made


def _run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr or done.stdout}"
    return done.stdout
