"""Ready means served: a client that connects the moment a node says so is served."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pika
import pytest

from live.conftest import DEADLINE_S, eventually
from warren.local import LocalCluster
from warren_broker import ready as probe

pytestmark = pytest.mark.live
POLL_S = 0.001
"""Of looking for the file: the moment that a client would use."""


def wait_for(path: Path) -> dict[str, str]:
    """The file's content, as soon as it is there."""
    deadline = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(POLL_S)
    found: dict[str, str] = json.loads(path.read_text())
    return found


def use(address: str, name: str) -> None:
    """What any client does first: log in, declare, publish with a confirm, get."""
    parameters = pika.URLParameters(f"amqp://guest:guest@{address}/%2F?connection_attempts=1")
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(name, durable=True, arguments={"x-quorum-initial-group-size": 1})
        channel.basic_publish("", name, b"served")
        method, _, body = channel.basic_get(name, auto_ack=True)
        assert method is not None and body == b"served"
        channel.queue_delete(name)


def test_a_client_is_served_the_moment_a_node_is_ready(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=1, directory=tmp_path)
    try:
        for round_ in range(3):  # the first start founds the cluster, the others recover
            cluster.spawn(0)
            ready = wait_for(cluster.nodes[0].data_dir / "ready.json")
            use(ready["amqp"], f"ready.{round_}")
            eventually(lambda: "warren ready node=node-0" in cluster.log(0), "the line")
            cluster.stop_node(0)
            assert not (cluster.nodes[0].data_dir / "ready.json").exists()
    finally:
        cluster.stop()


def test_a_node_without_a_majority_listens_and_is_not_ready(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=3, directory=tmp_path)
    ready = [node.data_dir / "ready.json" for node in cluster.nodes]
    try:
        cluster.spawn(0)
        wait_for(cluster.nodes[0].data_dir / "listening.json")
        eventually(lambda: "waiting for node" in cluster.log(0), "that it waits for the others")
        assert not ready[0].exists() and "warren ready" not in cluster.log(0)
        cluster.spawn(1)
        cluster.spawn(2)
        for number in (2, 0, 1):
            use(wait_for(ready[number])["amqp"], f"ready.{number}")

        # Restarted with a majority down: it recovers, listens, and no client could log in.
        for number in range(3):
            cluster.kill(number)
        cluster.spawn(1)
        wait_for(cluster.nodes[1].data_dir / "listening.json")
        assert not ready[1].exists()
        cluster.spawn(2)
        for number in (1, 2):
            use(wait_for(ready[number])["amqp"], f"again.{number}")
    finally:
        cluster.stop()


def test_a_container_is_told_whether_its_node_serves_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = LocalCluster(nodes=1, directory=tmp_path)
    node = cluster.nodes[0]

    def asked() -> tuple[int, str]:
        code = probe.main(["--config", str(node.config_file)])
        return code, "".join(capsys.readouterr())

    try:
        assert asked()[0] == 1 and not node.data_dir.exists()
        cluster.start()
        assert asked() == (0, "serves clients\n")
        pid = json.loads((node.data_dir / "ready.json").read_text())["pid"]
        monkeypatch.setattr(probe, "READY_ANSWER_S", 0.5)
        os.kill(pid, signal.SIGSTOP)  # it hangs: its port is open
        try:
            code, said = asked()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert code == 1 and "does not answer: timed out" in said
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: "refused" in asked()[1], "that nothing listens")
        assert (node.data_dir / "ready.json").exists() and asked()[0] == 1
    finally:
        cluster.stop()


def test_the_default_password_is_warned_of(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, directory=tmp_path) as cluster:
        said = "user 'guest' has the default password and may connect from this machine"
        eventually(lambda: said in cluster.log(0), "the warning")
    settings = {"default_pass": "another", "loopback_users": "none"}
    with LocalCluster(nodes=1, directory=tmp_path / "2", settings=settings) as cluster:
        assert "default password" not in cluster.log(0)
