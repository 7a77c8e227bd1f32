"""A node as a service: what systemd is told, and the unit of `deploy/systemd`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from live.conftest import STRICT
from live.load import connect
from tools.environment import ROOT, environment
from warren.local import LocalCluster
from warren_broker.listeners.service_manager import (
    NOTIFY_ALIVE,
    NOTIFY_READY,
    NOTIFY_SOCKET,
    NOTIFY_STOPPING,
    WATCHDOG_INTERVAL,
)

pytestmark = [pytest.mark.live, pytest.mark.slow]
UNIT = ROOT / "deploy" / "systemd" / "warren@.service"
START_S = 60.0
STOP_S = 30.0


def unit() -> dict[str, str]:
    """The unit's keys; the last one of a name counts."""
    lines = [line.partition("=") for line in UNIT.read_text().splitlines() if line[:1] not in "#["]
    return {key: value for key, _, value in lines}


def command(config: Path) -> list[str]:
    """The unit's command, with this Python and that configuration."""
    words = unit()["ExecStart"].split()
    module = [sys.executable, "-m", "warren_broker"]
    return [*module, *(str(config) if "%i" in word else word for word in words[1:])]


def test_systemd_is_told_when_clients_are_served_and_when_the_node_stops(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=1, directory=tmp_path / "cluster")
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(START_S)
        node = subprocess.Popen(
            command(cluster.nodes[0].config_file),
            env=environment(**{NOTIFY_SOCKET: str(address)}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert manager.recv(100).decode() == NOTIFY_READY
            with connect(cluster, 0) as connection:
                connection.channel().queue_declare("served", durable=True)
            node.send_signal(signal.SIGTERM)
            assert manager.recv(100).decode() == NOTIFY_STOPPING
            assert node.wait(STOP_S) == 0
        finally:
            node.kill()
            node.wait()


def test_the_watchdog_hears_of_the_loop_until_the_process_is_suspended(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=1, directory=tmp_path / "cluster")
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(START_S)
        node = subprocess.Popen(
            command(cluster.nodes[0].config_file),
            env=environment(**{NOTIFY_SOCKET: str(address), WATCHDOG_INTERVAL: "300000"}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert manager.recv(100).decode() == f"{WATCHDOG_INTERVAL}=300000"
            heard = [manager.recv(100).decode() for _ in range(20)]
            assert heard.count(NOTIFY_ALIVE) == 19 and NOTIFY_READY in heard
            node.send_signal(signal.SIGSTOP)
            manager.settimeout(1.0)
            with pytest.raises(TimeoutError):
                for _ in range(1_000):
                    manager.recv(100)
        finally:
            node.kill()
            node.wait()


def test_the_journal_gets_priorities(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=1, directory=tmp_path / "cluster")
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as journal:
        found = os.fstat(write_end)
        node = subprocess.Popen(
            command(cluster.nodes[0].config_file),
            env=environment(JOURNAL_STREAM=f"{found.st_dev}:{found.st_ino}"),
            stdout=subprocess.DEVNULL,
            stderr=write_end,
        )
        os.close(write_end)
        try:
            lines = []
            while not lines or "serves clients" not in lines[-1]:
                lines.append(journal.readline())
                assert lines[-1], lines
        finally:
            node.kill()
            node.wait()
    assert all(line[0] == "<" and line[2] == ">" for line in lines), lines
    warned = [line for line in lines if line.startswith("<4>")]
    assert [line for line in warned if "default password" in line] == warned, "one node, no peers"


def test_a_wrong_configuration_is_not_tried_again(tmp_path: Path) -> None:
    config = tmp_path / "1.toml"
    config.write_text('lisen = "a typing error"\n')
    ended = subprocess.run(
        command(config), env=environment(), capture_output=True, timeout=START_S, check=False
    )
    assert str(ended.returncode) == unit()["RestartPreventExitStatus"], ended.stderr


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        assert STRICT not in os.environ, "no systemd-analyze: apt-get install systemd"
        pytest.skip("no systemd-analyze: apt-get install systemd")
    instance = tmp_path / "warren@1.service"
    instance.write_text(UNIT.read_text().replace("warren-broker ", f"{sys.executable} "))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(instance)],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    ours = [line for line in checked.stderr.splitlines() if "warren@" in line]
    assert not checked.returncode and not ours, checked.stderr


def test_systemd_finds_little_exposed(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        assert STRICT not in os.environ, "no systemd-analyze: apt-get install systemd"
        pytest.skip("no systemd-analyze: apt-get install systemd")
    instance = tmp_path / "warren@1.service"
    instance.write_text(UNIT.read_text())
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(instance)],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout  # 2.0 in all at the most
