"""Spark in Kubernetes' cluster mode: a real API server, pods that are processes of this machine.

A kubelet that is none does what the kubelet and the image's entry point do with the pods of Spark:
it starts the container's program with the pod's variables, Secrets, ConfigMap and the token of its
service account, says how it ended, and ends it when the pod is deleted. Names of Services and
addresses of pods are 127.0.0.1. Pods are ready at once, which is kwok's work.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.ports import free_ports
from chart import programs
from chart.control_plane import ControlPlane
from sparks import venvs
from sparks.places import Place, Process, with_java
from tests.patience import PATIENCE_S

ACCOUNT = "spark"
LOOK_S = 0.5
PODS = "spark-role in (driver, executor)"
CONF = "/opt/spark/conf"
"""Where Spark mounts its ConfigMap, in each image."""
HERE = "127.0.0.1"
BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
EXECUTOR = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class Kubelet:
    """Runs the pods of one namespace.

    log  of the driver that began last: what it prints is there
    """

    def __init__(self, plane: ControlPlane, venv: Path, java_home: str, directory: Path) -> None:
        self.plane, self.directory = plane, directory
        self.home = venvs.spark_home(venv)
        self.log = directory / "no-driver.log"
        self._env = with_java(venvs.bare_environment(venv), java_home)
        self._running: dict[str, tuple[str, Process]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._ended.set()
        self._thread.join()
        for _, process in self._running.values():
            process.kill()

    def of(self, role: str) -> list[str]:
        """Return the names of the pods of that role that run."""
        return sorted(name for name, (found, _) in self._running.items() if found == role)

    def kill(self, name: str) -> None:
        """Kill the program of a pod."""
        os.killpg(self._running[name][1].pid, signal.SIGKILL)

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_S):
            found = {pod["metadata"]["name"]: pod for pod in self.plane.list("pods", PODS)["items"]}
            for name, pod in found.items():
                known = name in self._running
                if not known and pod["status"]["phase"] == "Running" and self._mounted(pod):
                    role = pod["metadata"]["labels"]["spark-role"]
                    self._running[name] = role, self._start(name, role, pod)
            for name, (_, process) in list(self._running.items()):
                code = process.popen.poll()
                if name not in found or "deletionTimestamp" in found[name]["metadata"]:
                    process.kill()
                elif code is not None:
                    self._tell_end(name, found[name], code)
                else:
                    continue
                del self._running[name]

    def _start(self, name: str, role: str, pod: dict[str, Any]) -> Process:
        (container,) = pod["spec"]["containers"]
        folder = self.directory / name
        env = {one["name"]: self._here(_value(one), folder) for one in container.get("env", ())}
        account = pod["spec"]["serviceAccountName"]
        env |= self._env | {"KUBECONFIG": self._access(account, folder)}
        arguments = [self._here(one, folder) for one in container["args"]]
        log = folder / "log"
        if role == "driver":
            self.log = log
            bind = f"spark.driver.bindAddress={HERE}"
            submit = str(self.home / "bin" / "spark-submit")
            command = [submit, "--conf", bind, "--deploy-mode", "client", *arguments[1:]]
        else:
            size = env["SPARK_EXECUTOR_MEMORY"]
            options = [v for k, v in sorted(env.items()) if k.startswith("SPARK_JAVA_OPT_")]
            classes = f"{env.get('SPARK_CONF_DIR', folder)}:{self.home / 'jars'}/*"
            told = [text for option, key in EXECUTOR.items() for text in (option, env[key])]
            java = str(Path(env["JAVA_HOME"]) / "bin" / "java")
            command = [java, *options, f"-Xmx{size}", "-cp", classes, BACKEND, *told]
        return Process(command, env, log)

    def _mounted(self, pod: dict[str, Any]) -> bool:
        """Write the pod's volumes; return whether all are there: Spark makes some after the pod."""
        folder = self.directory / pod["metadata"]["name"]
        folder.mkdir(exist_ok=True)
        (container,) = pod["spec"]["containers"]
        mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        for volume in pod["spec"]["volumes"]:
            if "secret" in volume:
                found = self._data("secret", volume["secret"]["secretName"])
                made = {key: base64.b64decode(value) for key, value in found.items()}
            elif "configMap" in volume:
                found = self._data("configmap", volume["configMap"]["name"])
                made = {key: self._here(value, folder).encode() for key, value in found.items()}
            else:
                continue
            if not made:
                return False
            place = Path(self._here(mounts[volume["name"]], folder))
            place.mkdir(parents=True, exist_ok=True)
            for key, content in made.items():
                (place / key).write_bytes(content)
        return True

    def _data(self, kind: str, name: str) -> dict[str, str]:
        done = self.plane.tried("kubectl", "get", kind, name, "-o", "json")
        found: dict[str, str] = json.loads(done.stdout)["data"] if done.returncode == 0 else {}
        return found

    def _here(self, text: str, folder: Path) -> str:
        """Return a text of a pod with the folders and names of this machine."""
        text = text.replace(CONF, str(folder / "conf"))
        return re.sub(r"[\w.-]+-driver-svc\.default\.svc", HERE, text)

    def _access(self, account: str, folder: Path) -> str:
        """Write what the pod's program reaches the API server with; return the file's path."""
        access = json.loads(self.plane.kubeconfig.read_text(encoding="utf-8"))
        token = self.plane.run("kubectl", "create", "token", account).strip()
        access["users"][0]["user"]["token"] = token
        (folder / "kubeconfig").write_text(json.dumps(access), encoding="utf-8")
        return str(folder / "kubeconfig")

    def _tell_end(self, name: str, pod: dict[str, Any], code: int) -> None:
        container = pod["spec"]["containers"][0]["name"]
        ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Ended"}
        state = {"name": container, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [{**state, "state": {"terminated": ended}}],
        }
        told = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
        self.plane.tried("kubectl", "patch", "pod", name, *told)


def _value(variable: dict[str, Any]) -> str:
    """Return a variable's value; the only fields that Spark asks for are addresses and names."""
    field = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
    return HERE if field == "status.podIP" else str(variable.get("value", ""))


@contextmanager
def cluster(version: str, java_home: str, directory: Path) -> Iterator[Place]:
    """Driver and two executors in pods; the password is a Secret that all of them mount."""
    programs.ensure()
    venv = venvs.session(version)
    with tempfile.TemporaryDirectory(prefix="warren-plane-") as folder:
        plane = ControlPlane(Path(folder))
        try:
            plane.start()
            plane.run("kubectl", "create", "serviceaccount", ACCOUNT)
            role = ("--clusterrole=edit", f"--serviceaccount=default:{ACCOUNT}")
            plane.run("kubectl", "create", "rolebinding", ACCOUNT, *role)
            secret = ("secret", "generic", "warren", "--from-literal=password=guest")
            plane.run("kubectl", "create", *secret)
            with Kubelet(plane, venv, java_home, directory) as kubelet:
                yield _place(version, venv, java_home, kubelet)
        finally:
            plane.stop()


def _place(version: str, venv: Path, java_home: str, kubelet: Kubelet) -> Place:
    plane, secrets = kubelet.plane, kubelet.directory / "secrets"
    server = f"https://{HERE}:{plane.port}"
    names = "spark.kubernetes"
    conf = {
        f"{names}.container.image": "spark-warren",
        f"{names}.authenticate.driver.serviceAccountName": ACCOUNT,
        f"{names}.driver.master": server,
        f"{names}.driver.secrets.warren": str(secrets),
        f"{names}.executor.secrets.warren": str(secrets),
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.pyspark.python": str(venv / "bin" / "python"),
        "spark.ui.enabled": "false",
        "spark.driver.port": str(free_ports(1)),
        "spark.driver.blockManager.port": str(free_ports(1)),
    }
    submit = [str(venvs.spark_home(venv) / "bin" / "spark-submit"), "--master", f"k8s://{server}"]
    submit += ["--deploy-mode", "cluster"]
    for name, value in conf.items():
        submit += ["--conf", f"{name}={value}"]
    env = with_java(venvs.bare_environment(venv), java_home)
    env["KUBECONFIG"] = str(plane.kubeconfig)

    def evict() -> str:
        name = kubelet.of("executor")[0]
        plane.run("kubectl", "delete", "pod", name, "--wait=false")
        return "an executor evicted"

    def kill_driver(program: Process) -> str:
        (name,) = kubelet.of("driver")
        kubelet.kill(name)
        program.popen.wait()  # it says that the application has failed
        deadline = time.monotonic() + PATIENCE_S
        while kubelet.of("executor"):
            assert time.monotonic() < deadline, kubelet.of("executor")
            time.sleep(LOOK_S)
        return "the driver's pod killed"

    return Place(
        f"PySpark {version}, Kubernetes, cluster mode, two executors",
        submit,
        env,
        kill_driver,
        evict,
        scheme="local://",
        output=lambda: kubelet.log,
        options={"user": "guest", "passwordFile": str(secrets / "password")},
    )
