"""The list of delayed messages, on a node that has a lagging member of the queue."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from warren_broker.admin import delayed
from warren_broker.cluster.client.reads import FETCH_BYTES_MAX, ReadFailed, Runs
from warren_wire.admin.delayed import DelayedInfo, delayed_id
from warren_wire.admin.requests import Listed
from warren_wire.block.block import encode
from warren_wire.errors import Refusal, Unavailable

ROWS = ((50, 7, 0, 1, 0, 0), (60, 9, 0, 2, 0, 0))
"""(ready_ms, index, first, last, failed, acquired): five messages of two entries."""


class Reading:
    """Reads one message of `size_bytes` at a time, `readable` of them."""

    def __init__(self, size_bytes: int, readable: int = 5) -> None:
        self.size_bytes = size_bytes
        self.readable = readable
        self.asked: list[tuple[Runs, int]] = []

    def block(self, group: int, runs: Runs, bytes_max: int, done: Callable[[Any], None]) -> None:
        self.asked.append((runs, bytes_max))
        if len(self.asked) > self.readable:
            done(ReadFailed("no leader", True))
            return
        done((1, encode([bytes(self.size_bytes)], [b"\x00\x00"], (b"x", b"key"), 4, None)))


def listed(reading: Reading) -> Listed[DelayedInfo] | Refusal:
    asker: Any = SimpleNamespace(broker=SimpleNamespace(reading=reading), guard=lambda call: call)
    queue: Any = SimpleNamespace(group=3)
    answers: list[Any] = []
    delayed._read(asker, queue, ROWS, answers.append)
    (answer,) = answers
    found: Listed[DelayedInfo] | Refusal = answer
    return found


def test_a_member_that_lags_is_asked_for_the_rest() -> None:
    """It listed what that member had applied, as if there were no more."""
    reading = Reading(10)
    found = listed(reading)
    assert isinstance(found, Listed)
    places = [(50, 7, 0), (50, 7, 1), (60, 9, 0), (60, 9, 1), (60, 9, 2)]
    assert [each.id for each in found.values] == [delayed_id(*place) for place in places]
    assert reading.asked[-1][0] == ((9, 2, 2, 0, 0),)


def test_the_list_ends_at_the_bytes_of_one_read() -> None:
    reading = Reading(FETCH_BYTES_MAX // 2)
    found = listed(reading)
    assert isinstance(found, Listed)
    assert len(found.values) == 2 and reading.asked[1][1] < FETCH_BYTES_MAX // 2


def test_a_read_that_fails_in_between_is_no_list() -> None:
    assert isinstance(listed(Reading(10, readable=2)), Unavailable)
