"""How many of a process's files connections may take."""

from __future__ import annotations

import resource
import socket
from typing import Any, cast

import pytest

from warren_raft.runtime import open_files
from warren_raft.runtime.open_files import SocketBound


class Numbered:
    """A socket of that number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number


@pytest.mark.parametrize(
    ("limit", "clients", "peers"),
    [(1 << 20, (1 << 20) - 512, (1 << 20) - 256), (1024, 512, 768), (160, 80, 120), (2, 1, 2)],
)
def test_clients_leave_files_to_peers_and_both_to_the_log(
    limit: int, clients: int, peers: int
) -> None:
    for bound, end in ((SocketBound(True, limit), clients), (SocketBound(False, limit), peers)):
        assert bound.end == end
        assert bound.admits(cast(socket.socket, Numbered(end - 1)))
        assert not bound.admits(cast(socket.socket, Numbered(end)))


def test_without_a_limit_there_is_no_bound() -> None:
    for clients in (True, False):
        assert SocketBound(clients, -1).admits(cast(socket.socket, Numbered(1 << 30)))


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (100, 200))
    monkeypatch.setattr(resource, "setrlimit", refused)
    assert open_files.raise_limit() == (100, 100)
