"""The process of a node: on a disk without space, and as the first one of a container."""

from __future__ import annotations

import errno
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.environment import environment
from warren_broker import __main__ as process
from warren_broker import node as nodes
from warren_broker.config import NodeConfig
from warren_broker.node import Node
from warren_wire.node_files import READY_FILE


class Anew(Exception):
    """The process was replaced."""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Its start, and what it says about itself, meet a full disk; it begins again by `Anew`."""

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def replaced(program: str, arguments: list[str]) -> None:
        assert (program, arguments[0]) == (sys.executable, sys.executable)
        raise Anew

    made = Node(NodeConfig(data_dir=tmp_path))
    monkeypatch.setattr(made, "start", full)
    monkeypatch.setattr(nodes, "_write", full)
    monkeypatch.setattr(Node, "amqp_address", "here:1")
    monkeypatch.setattr(Node, "amqps_address", "none")
    monkeypatch.setattr(Node, "peer_address", "here:2")
    monkeypatch.setattr(process, "SPACE_POLL_S", 0)
    monkeypatch.setenv(process.STARTS_REFUSED, "0")
    monkeypatch.setattr(process.os, "execv", replaced)
    return made


def test_a_start_without_space_is_tried_again(
    made: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Setting a damaged log aside, say, takes space: the node continues when there is some."""
    (tmp_path / "node.json").write_text("{}")
    with pytest.raises(Anew):
        process.run(made)
    assert "cannot start yet" in caplog.text and os.strerror(errno.ENOSPC) in caplog.text


def test_a_start_that_waits_for_space_for_long_is_tried_once_a_minute(
    made: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: every two seconds for days, with all that a start says."""
    (tmp_path / "node.json").write_text("{}")
    slept: list[float] = []
    monkeypatch.setattr(process, "SPACE_POLL_S", 2)
    monkeypatch.setattr(process.time, "sleep", slept.append)
    for _ in range(8):
        with pytest.raises(Anew):
            process.run(made)
    assert slept == [2, 4, 8, 16, 32, 64, 64, 64]


def test_a_first_start_without_space_ends(made: Node) -> None:
    assert process.run(made) == process.EXIT_FAILED


def test_what_is_not_true_any_more_is_not_written_when_there_is_space_again(
    made: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(made.loop, "call_later", lambda delay, call: calls.append(call))
    caplog.set_level(logging.CRITICAL)
    made._write(READY_FILE)
    made._remove(READY_FILE)  # the node is in maintenance
    monkeypatch.setattr(nodes, "_write", lambda path, values: path.write_text(json.dumps(values)))
    calls.pop()()
    assert not (tmp_path / READY_FILE).exists()
    made._write(READY_FILE)
    assert (tmp_path / READY_FILE).exists() and not calls


def test_a_file_that_waits_for_space_is_told_of_ever_less(
    made: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Before: an error each second, for as long as the disk was full."""
    calls: list[Any] = []
    monkeypatch.setattr(made.loop, "call_later", lambda delay, call: calls.append(call))
    made._write(READY_FILE)
    for _ in range(86_400):
        calls.pop()()
    assert caplog.text.count("no space for") == 17
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(nodes, "_write", lambda path, values: path.write_text(json.dumps(values)))
    calls.pop()()
    assert (tmp_path / READY_FILE).exists() and not calls
    assert caplog.text.count("there is space again for") == 1


@pytest.mark.parametrize(
    ("number", "names_a_file", "said"),
    [
        (errno.EACCES, True, "this process runs as user "),
        (errno.EPERM, True, "`chown -R "),
        (errno.EACCES, False, "CAP_NET_BIND_SERVICE"),
        (errno.EISDIR, True, "move "),
    ],
)
def test_a_start_that_is_not_permitted_says_what_to_do(
    number: int,
    names_a_file: bool,
    said: str,
    made: Node,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Before: `[Errno 13] Permission denied`, and nothing more."""
    path = (str(tmp_path / "missing" / "log"),) if names_a_file else ()

    def refused() -> None:
        raise OSError(number, os.strerror(number), *path)

    monkeypatch.setattr(made, "start", refused)
    assert process.run(made) == process.EXIT_FAILED
    assert said in caplog.text and os.strerror(number) in caplog.text
    if number == errno.EACCES and names_a_file:
        assert f"{tmp_path} is " in caplog.text, "the nearest that exists, with its owner"


def test_a_fault_in_the_program_has_an_exit_code_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Python's own code for it is 1, with which the node says that it cannot start."""

    def broken(node: Node) -> int:
        raise AssertionError("a fault, for the test")

    monkeypatch.setattr(process, "run", broken)
    monkeypatch.setattr(process.logs, "set_up", lambda level: None)
    monkeypatch.setattr(process.structured_logs, "configure", lambda settings: None)
    monkeypatch.setattr(process.allocator, "use_one_arena", lambda: None)
    monkeypatch.setattr(process.allocator, "give_back_regularly", lambda: None)
    monkeypatch.setattr(process.gc, "set_threshold", lambda *numbers: None)
    monkeypatch.setattr(process.gc, "freeze", lambda: None)
    monkeypatch.setattr(process.sys, "setswitchinterval", lambda seconds: None)
    path = tmp_path / "warren.toml"
    path.write_text(f'data_dir = "{tmp_path}/data"\n')
    assert process.main(["--config", str(path)]) == process.EXIT_FAULT == 70
    assert "a fault, for the test" in caplog.text


def test_the_first_process_of_a_container_ends_and_reaps() -> None:
    script = (
        "import os, signal, subprocess, sys, time\n"
        "from warren_broker import __main__ as process\n"
        "process.FIRST_PROCESS = os.getpid()\n"
        "process.end_by_signals()\n"
        "child = subprocess.Popen([sys.executable, '-c', ''])\n"
        "while os.path.exists(f'/proc/{child.pid}'):\n"  # a zombie would stay
        "    time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], env=environment(), check=False)
    assert ended.returncode == 128 + signal.SIGTERM
