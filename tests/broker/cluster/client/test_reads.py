"""Reads of stored messages end after so many blocks; the asker continues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.client.test_history import bind, exchange, publish
from broker.cluster.membership.clusters import begun
from broker.cluster.universe import Universe
from warren_broker.block.block import Block
from warren_broker.cluster.client import reads

MESSAGES = 7
BLOCKS_MAX = 3


@pytest.fixture
def universe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Universe]:
    """A history of MESSAGES messages in as many blocks, and queue q, which is not bound."""
    monkeypatch.setattr(reads, "READ_BLOCKS_MAX", BLOCKS_MAX)
    made = begun()
    exchange(made, "h", "x-recent-history", {"x-recent-history-length": MESSAGES})
    for number in range(MESSAGES):
        assert publish(made, [number]).confirmed()
    yield made
    made.close()


def read_all(universe: Universe, name: str) -> list[list[str]]:
    """The bodies of a queue's ready messages, read by read."""
    broker = next(iter(universe.running.values())).broker
    queue = broker.definitions.state.queue("/", name)
    assert queue is not None
    found: list[Any] = []
    broker.reading.runs(queue.group, "", 0, 0, 1 << 20, found.append)
    universe.until(lambda: found, "the runs")
    left, read = found[0], []
    while left:
        answers: list[Any] = []
        broker.reading.block(queue.group, left, reads.FETCH_BYTES_MAX, answers.append)
        universe.until(lambda answers=answers: answers, "the block")
        taken, data = answers[0]
        block = Block.decode(data)
        assert len(block) == taken
        read.append([bytes(block.body(i)).decode() for i in range(taken)])
        left = reads.cut_runs(left, taken)[1]
    return read


def test_a_read_ends_after_so_many_blocks(universe: Universe) -> None:
    assert read_all(universe, "amq.history.h") == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


def test_a_new_queue_gets_a_history_of_more_blocks(universe: Universe) -> None:
    bind(universe)
    read = [body for bodies in read_all(universe, "q") for body in bodies]
    assert read == [str(number) for number in range(MESSAGES)]
