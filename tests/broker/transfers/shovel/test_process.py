"""A shovel's process as its node sees it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from warren_broker.process import worker_process
from warren_broker.transfers.shovel.process import FETCH, REMOVE, ShovelProcess
from warren_raft.runtime.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """The other ends of processes that are not started."""
    found: list[socket.socket] = []

    def spawn(module: str, fd: int, sockets: Any) -> Any:
        found.append(socket.socket(fileno=os.dup(fd)))
        found[-1].settimeout(PATIENCE_S)
        return SimpleNamespace(poll=lambda: 0, kill=lambda: None)

    monkeypatch.setattr(worker_process, "_spawn", spawn)
    yield found
    for one in found:
        one.close()


def test_a_long_definition_does_not_hold_up_the_node(
    loop: Loop, theirs: list[socket.socket]
) -> None:
    """More than a socket takes, to a process that reads nothing before Python has started."""
    job = {"name": "long", "value": {"dest-queue-args": {"x": "y" * (3 << 20)}}}
    made = ShovelProcess(loop, job, lambda status: None, lambda why: None)
    loop.run_turn(0)
    assert not made.tell(FETCH), "in the middle of the definition"
    read = bytearray()
    while not read.endswith(b"\n"):
        read += theirs[0].recv(1 << 20)
        loop.run_turn(0)
    assert json.loads(read) == job
    assert made.tell(FETCH)
    loop.run_turn(0)
    assert theirs[0].recv(100) == FETCH
    made.tell_all(REMOVE)
    made.stop()
    assert theirs[0].recv(100) == REMOVE, "before the order to end"
    assert not theirs[0].recv(100)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"no status\n", "its process sent something else than a status"),
        (b"x" * (70 << 10), "its process sent a line of more than 65,536 bytes"),
        (b"", "its process has ended"),
    ],
)
def test_a_process_that_says_no_status_has_ended(
    loop: Loop, theirs: list[socket.socket], said: bytes, why: str
) -> None:
    ends: list[str] = []
    ShovelProcess(loop, {}, lambda status: None, ends.append)
    if said:
        theirs[0].sendall(said)
    else:
        theirs[0].shutdown(socket.SHUT_WR)
    while not ends:
        loop.run_turn(100)
    (told,) = ends
    assert told.startswith(why)
