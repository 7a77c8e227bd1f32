"""A node as a service: what systemd is told, and the unit of `examples/systemd`."""

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
from warren_broker.server.service_manager import NOTIFY_READY, NOTIFY_SOCKET, NOTIFY_STOPPING

pytestmark = [pytest.mark.live, pytest.mark.slow]
UNIT = ROOT / "examples" / "systemd" / "warren@.service"
START_S = 60.0
STOP_S = 30.0


def unit() -> dict[str, str]:
    """The unit's keys; the last one of a name counts."""
    lines = [line.partition("=") for line in UNIT.read_text().splitlines() if line[:1] not in "#["]
    return {key: value for key, _, value in lines}


def command(config: Path) -> list[str]:
    """The unit's command, with this Python and that configuration."""
    words = unit()["ExecStart"].split()
    return [sys.executable, *(str(config) if "%i" in word else word for word in words[1:])]


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
    python = unit()["ExecStart"].split()[0]
    instance.write_text(UNIT.read_text().replace(python, sys.executable))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(instance)],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    ours = [line for line in checked.stderr.splitlines() if "warren@" in line]
    assert not checked.returncode and not ours, checked.stderr
