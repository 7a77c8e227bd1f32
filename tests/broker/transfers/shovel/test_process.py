"""A shovel's process as its node sees it."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from warren_broker.transfers.shovel.process import FETCH, ShovelProcess


def test_a_long_definition_does_not_hold_up_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a socket takes, to a process that reads nothing before Python has started."""
    theirs: list[socket.socket] = []
    timers: list[Callable[[], None]] = []

    def spawn(self: ShovelProcess, fd: int) -> Any:
        theirs.append(socket.socket(fileno=os.dup(fd)))
        return SimpleNamespace(poll=lambda: 0, kill=lambda: None)

    monkeypatch.setattr(ShovelProcess, "_spawn", spawn)
    loop: Any = SimpleNamespace(
        clock=SimpleNamespace(monotonic_ms=lambda: 0),
        register=lambda *args, **more: SimpleNamespace(close=lambda: None),
        call_later=lambda ms, call: timers.append(call),
    )
    job = {"name": "long", "value": {"dest-queue-args": {"x": "y" * (3 << 20)}}}
    made: list[ShovelProcess] = []

    def make() -> None:
        made.append(ShovelProcess(loop, job, lambda status: None, lambda why: None))

    maker = threading.Thread(target=make, daemon=True)
    maker.start()
    maker.join(PATIENCE_S)
    assert made, "the node waits for the process"
    assert not made[0].tell(FETCH), "in the middle of the definition"
    read = bytearray()
    with theirs[0] as child:
        child.settimeout(PATIENCE_S)
        while not read.endswith(b"\n"):
            read += child.recv(1 << 20)
            for call in timers[:]:
                timers.remove(call)
                call()
        assert json.loads(read) == job
        assert made[0].tell(FETCH) and child.recv(100) == FETCH
    made[0].stop()
