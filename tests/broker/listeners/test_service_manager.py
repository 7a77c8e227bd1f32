"""What the service manager is told."""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from warren_broker.listeners.service_manager import NOTIFY_READY, NOTIFY_SOCKET, notify


@pytest.mark.parametrize("abstract", [False, True])
def test_a_state_arrives_at_the_socket(
    abstract: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"@warren-test-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if abstract else name)
        manager.settimeout(PATIENCE_S)
        monkeypatch.setenv(NOTIFY_SOCKET, name)
        notify(NOTIFY_READY)
        assert manager.recv(100) == b"READY=1"


def test_without_a_service_manager_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv(NOTIFY_SOCKET, raising=False)
    notify(NOTIFY_READY)
    assert not caplog.records


def test_a_service_manager_that_is_gone_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setenv(NOTIFY_SOCKET, str(tmp_path / "gone"))
    notify(NOTIFY_READY)
    assert f"{tmp_path}/gone is not told READY=1: " in caplog.text


def test_a_service_manager_that_reads_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    address = str(tmp_path / "full")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                while True:
                    other.sendto(b"x", address)
        monkeypatch.setenv(NOTIFY_SOCKET, address)
        assert notify(NOTIFY_READY), "it may be tried again"
        assert "does not take READY=1 now" in caplog.text
        manager.recv(1)
        assert not notify(NOTIFY_READY)
