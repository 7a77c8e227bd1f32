"""When a shovel that has failed begins again."""

from __future__ import annotations

import socket
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.transfers.shovel import worker
from warren_broker.transfers.shovel.worker import DELAY_S_MAX, delay_after
from warren_wire.links.definition import parse_shovel
from warren_wire.sessions.locate import OwnNode


@pytest.mark.parametrize(
    ("configured_s", "expected"),
    [
        (1, [1, 2, 4, 8, 16, 32, 60, 60]),
        (5, [5, 10, 20, 40, 60, 60]),
        (0.5, [0.5, 1, 2, 4]),
        (90, [90, 90, 90]),
    ],
)
def test_the_delay_is_doubled_up_to_a_minute_or_what_is_configured(
    configured_s: float, expected: list[float]
) -> None:
    assert [delay_after(configured_s, rounds) for rounds in range(len(expected))] == expected


def test_ever_so_many_failures_have_a_delay() -> None:
    assert delay_after(1e-3, 10**6) == DELAY_S_MAX


def test_a_destination_that_confirms_nothing_counts_as_blocked_after_a_while() -> None:
    """Its state said that messages move, for ever."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = _worker(ours)
        transfer: Any = SimpleNamespace(pending=2, blocked=False, refused=False)
        made._transfer = transfer
        for _ in range(round(worker.UNCONFIRMED_S / worker.REPORT_S)):
            assert made._told is None or made._told.blocked_status == "running"
            made._tick()
        assert made._told.blocked_status == "blocked"
        transfer.refused = True
        made._tick()
        assert made._told.blocked_status == "refused"
        transfer.refused = False
        made._progress.forwarded += 1
        made._tick()
        assert made._told.blocked_status == "running"


def _worker(node: socket.socket) -> worker.ShovelWorker:
    value = {"src-uri": "amqp://there", "src-queue": "q", "dest-uri": "amqp://", "dest-queue": "d"}
    own = OwnNode("amqp", "127.0.0.1", 1, 1)
    return worker.ShovelWorker(parse_shovel("/", "s", value), own, "c", node)


def test_what_a_run_held_is_freed_before_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects are few, in cycles, and may hold hundreds of megabytes of messages."""
    runs: list[weakref.ref[object]] = []

    class _Run:
        suspects = 0

        def __init__(self, *given: object) -> None:
            self.itself = self
            runs.append(weakref.ref(self))

        def begin(self) -> None:
            """Nothing is to be connected."""

    monkeypatch.setattr(worker, "Transfer", _Run)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = _worker(ours)
        made._begin()
        made.failed("it did", False, False)
        made._begin()
    assert [run() is None for run in runs] == [True, False]
