"""Reads of stored messages end after so many blocks, or before damage; the asker continues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.cluster.client.test_history import bind, exchange, publish
from broker.cluster.membership.clusters import begun
from broker.cluster.universe import Universe
from warren_broker.cluster.client import reads
from warren_broker.cluster.client.reads import ReadFailed, Runs
from warren_raft.storage.errors import EntryDamaged
from warren_wire.block.block import Block

MESSAGES = 7
BLOCKS_MAX = 3


@pytest.fixture
def universe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Universe]:
    """A history of MESSAGES messages in as many blocks, and queue q, which is not bound."""
    monkeypatch.setattr(reads, "READ_BLOCKS_MAX", BLOCKS_MAX)
    made = begun()
    exchange(made, "h", "x-recent-history", {"x-recent-history-length": MESSAGES})
    for number in range(MESSAGES):
        assert publish(made, [number]).all_confirmed()
    yield made
    made.close()


def ready(universe: Universe, node: str, name: str) -> tuple[int, Runs]:
    """A queue's group, and where its ready messages are."""
    broker = universe.running[node].broker
    queue = broker.definitions.state.queue("/", name)
    assert queue is not None
    found: list[Any] = []
    broker.reading.runs(queue.group, "", 0, 0, 1 << 20, found.append)
    universe.until(lambda: found, "the runs")
    return queue.group, found[0]


def read_all(universe: Universe, name: str, node: str | None = None) -> list[list[str]]:
    """The bodies of a queue's ready messages, read by read through one node."""
    node = node or next(iter(universe.running))
    broker = universe.running[node].broker
    group, left = ready(universe, node, name)
    read = []
    while left:
        answers: list[Any] = []
        broker.reading.block(group, left, reads.FETCH_BYTES_MAX, answers.append)
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


class Damage:
    """Entries that are damaged on one node; `healing` are the calls that wait for their repair."""

    def __init__(self, universe: Universe, node: str, group: int, *indexes: int) -> None:
        self.indexes = set(indexes)
        self.healing: list[Callable[[], None]] = []
        host = universe.running[node].host
        intact = host.read_data

        def read_data(of: int, wanted: Iterable[int]) -> Iterator[bytes | EntryDamaged]:
            for index in wanted:
                if of == group and index in self.indexes:
                    yield EntryDamaged(Path("wal"), 0, "a test", of, index, 1, 1)
                else:
                    yield from intact(of, (index,))

        host.read_data = read_data  # type: ignore[method-assign]
        host.repair = SimpleNamespace(  # type: ignore[attr-defined]
            when=lambda of, index, call: self.healing.append(call)
        )


@pytest.mark.parametrize("at", range(3))
def test_an_entry_that_is_damaged_on_a_follower_comes_from_the_leader(
    universe: Universe, at: int
) -> None:
    leader = next(name for name, one in universe.running.items() if leads(universe, one))
    follower = next(name for name in universe.running if name != leader)
    group, runs = ready(universe, follower, "amq.history.h")
    universe.until(
        lambda: universe.running[follower].host.applied_index(group) >= runs[-1][0], "the entries"
    )
    Damage(universe, follower, group, runs[at][0])
    read = read_all(universe, "amq.history.h", follower)
    assert [body for bodies in read for body in bodies] == [str(n) for n in range(MESSAGES)]
    # Those before the damaged one are this node's own, and are not read again with it.
    assert len(read[0]) == (at or BLOCKS_MAX)


def test_what_precedes_a_damaged_entry_is_read_before_it_is_repaired(universe: Universe) -> None:
    leader = next(name for name, one in universe.running.items() if leads(universe, one))
    group, runs = ready(universe, leader, "amq.history.h")
    broker = universe.running[leader].broker
    damage = Damage(universe, leader, group, runs[2][0])
    taken, data = broker.reading.local_block(group, runs, reads.FETCH_BYTES_MAX)
    assert (taken, Block.decode(data).count) == (2, 2)
    answers: list[Any] = []
    broker.reading.block(group, runs[2:], reads.FETCH_BYTES_MAX, answers.append)
    universe.until(lambda: damage.healing, "the repair is waited for")
    assert not answers
    damage.indexes.clear()
    damage.healing.pop()()
    universe.until(lambda: answers, "the block")
    assert answers[0][0] == 3


def test_an_unreadable_block_is_named_and_leaves_those_before_it_readable(
    universe: Universe,
) -> None:
    leader = next(name for name, one in universe.running.items() if leads(universe, one))
    group, runs = ready(universe, leader, "amq.history.h")
    running = universe.running[leader]
    intact = running.host.read_data

    def cut_off(of: int, wanted: Iterable[int]) -> Iterator[bytes]:
        for index in wanted:
            (data,) = intact(of, (index,))
            yield data[:-1] if index == runs[2][0] else data

    running.host.read_data = cut_off  # type: ignore[method-assign]
    left, counts = runs, []
    answers: list[Any] = []
    while not answers or not isinstance(answers[-1], ReadFailed):
        running.broker.reading.block(group, left, reads.FETCH_BYTES_MAX, answers.append)
        universe.until(lambda: answers, "the block")
        if not isinstance(answers[-1], ReadFailed):
            counts.append(answers[-1][0])
            left = reads.cut_runs(left, answers[-1][0])[1]
    assert sum(counts) == 2
    assert f"entry {runs[2][0]} cannot be read: " in answers[-1].detail
    assert "'amq.history.h'" in answers[-1].detail


def leads(universe: Universe, one: Any) -> bool:
    queue = one.broker.definitions.state.queue("/", "amq.history.h")
    return queue is not None and bool(one.host.is_leader(queue.group))
