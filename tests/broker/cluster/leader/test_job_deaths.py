"""Jobs in whole brokers of which a node dies before any of its lasting changes, and comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from broker.cluster.membership.clusters import anybody, begun, declare
from broker.cluster.universe import Universe
from warren_broker.cluster.leader import job_runners
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import Enqueue, Get, GetReply
from warren_machines.queue.jobs.job_commands import BeginJob, JobIs, JobStat, SteerJob
from warren_machines.queue.state import QueueState
from warren_wire.block.block import Block, encode
from warren_wire.job_spec import JobSpec, encode_spec

COUNT = 14
BODIES = [b"%d" % n for n in range(COUNT)]


@pytest.fixture
def universe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Universe]:
    monkeypatch.setattr(job_runners, "TAKEN_MESSAGES_MAX", 4)
    made = begun()
    declare(made, "t")
    made.until(lambda: made.running["a"].broker.definitions.state.version > 1, "its version")
    for first in range(0, COUNT, 3):
        some = BODIES[first : first + 3]
        data = encode(some, [b"\0\0"] * len(some), (b"", b"q"))
        made.call("a", lambda broker, done, data=data: _put(broker, queue(made), data, done))
    yield made
    made.close()


def _put(broker: Any, record: QueueRecord, data: bytes, done: Any) -> None:
    broker.queues.client(record).with_block(Enqueue(), data, lambda reply, index: done(reply))


def queue(universe: Universe, name: str = "q") -> QueueRecord:
    found = universe.running[anybody(universe)].broker.definitions.state.queue("/", name)
    assert found is not None
    return found


def states(universe: Universe, name: str) -> list[QueueState]:
    """The states of the members that run."""
    members = [universe.member(node, queue(universe, name).group) for node in universe.running]
    return [member.state for member in members if member is not None]


def ready(universe: Universe, name: str) -> Counter[bytes]:
    """The ready messages of a queue, at the member that has applied most."""
    group = queue(universe, name).group
    there = [universe.member(node, group) for node in universe.running]
    best = max((one for one in there if one is not None), key=lambda one: one.applied)
    found: Counter[bytes] = Counter()
    for index, first, last, _, _ in best.state.order:
        data = universe.logs[group].entries[index - 1][1]
        block = Block.decode(memoryview(data)[4 + int.from_bytes(data[:4], "little") :])
        found.update(bytes(block.body(at)) for at in range(first, last + 1))
    return found


def _ask(record: QueueRecord, command: Any, broker: Any, done: Any) -> None:
    broker.queues.ask(record, command, done)


def asked(universe: Universe, command: Any, name: str = "q") -> Any:
    """What a queue answers, through a node that stays until it does."""
    while True:
        reply = universe.call(anybody(universe), partial(_ask, queue(universe, name), command))
        if isinstance(reply, JobIs | GetReply):
            return reply.job if isinstance(reply, JobIs) else reply
        universe.until(universe.ready, "all that run are ready")


def stat(universe: Universe, number: int) -> list[JobStat]:
    """The job as each member has it."""
    found = [state.jobs.by_number.get(number) for state in states(universe, "q")]
    return [job.stat() for job in found if job is not None]


def is_in(universe: Universe, number: int, state: str) -> bool:
    found = stat(universe, number)
    return len(found) == 3 and all(one.state == state for one in found)


@pytest.mark.parametrize("way", ["move", "copy"])
@pytest.mark.parametrize("dies_at", range(1, 36))
def test_each_message_is_there_once(universe: Universe, dies_at: int, way: Any) -> None:
    spec = encode_spec(JobSpec(routing_key="t", by_token=True))
    begin = BeginJob("once", way, 5, 10**9, spec)
    universe.arm(dies_at)
    number = asked(universe, begin).number
    universe.until(lambda: is_in(universe, number, "done"), "the job ends")
    done = stat(universe, number)[0]
    left = Counter(BODIES) if way == "copy" else Counter()
    assert done.done == COUNT and ready(universe, "t") == Counter(BODIES)
    assert ready(universe, "q") == left
    asked(universe, Get(5, 5, True), "t")  # a consumer of the target has one of them
    taken = Counter(BODIES) - ready(universe, "t")
    assert taken.total() == 1
    universe.until(lambda: is_in(universe, number, "done"), "a node that has died is back")
    universe.arm(dies_at)
    asked(universe, SteerJob(number, "undo"))
    universe.until(lambda: is_in(universe, number, "undone"), "it is undone")
    assert not ready(universe, "t")
    assert ready(universe, "q") == (Counter(BODIES) if way == "copy" else Counter(BODIES) - taken)
    assert {(one.back, one.consumed) for one in stat(universe, number)} == {(COUNT - 1, 1)}
    for name in "qt":
        for state in states(universe, name):
            state.check()
