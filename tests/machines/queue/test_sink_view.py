"""What a queue says about sinks: complete, in order, and without a change."""

from __future__ import annotations

from tests.machines.queue.stages import Stages
from tests.machines.queue.world import Queue
from warren_machines.queue import commands
from warren_machines.queue.view import sinks_of
from warren_wire.admin.queues import SINKS_LISTED_MAX


def publish(queue: Queue, sink: str, run: str, batch: int, messages: int) -> None:
    made = Stages(sink, run)
    made.put(queue, batch, 0, count=messages)
    assert queue.do(made.publish(batch, (0, 0, 1))) == commands.Count(messages)


def test_those_that_published_last_come_first_and_names_choose() -> None:
    queue = Queue()
    for sink, run in (("a", "1"), ("b", "1"), ("a", "2"), ("b", "2"), ("a", "1")):
        publish(queue, sink, run, queue.index, 2)
    order = [("a", "1"), ("a", "2"), ("b", "2"), ("b", "1")]
    before = queue.digest()
    for state in (queue.state, queue.machine.restore(before)):
        total, rows = sinks_of(state, "", "", SINKS_LISTED_MAX)
        assert (total, [row[:2] for row in rows]) == (4, order)
        total, rows = sinks_of(state, "", "", 3)
        assert (total, [row[:2] for row in rows]) == (4, order[:3])
        total, rows = sinks_of(state, "b", "", 1)
        assert (total, [row[:2] for row in rows]) == (2, [("b", "2")])
        total, rows = sinks_of(state, "", "1", 9)
        assert (total, [row[:2] for row in rows]) == (2, [("a", "1"), ("b", "1")])
        assert sinks_of(state, "b", "3", 9) == sinks_of(state, "c", "", 9) == (0, ())
    assert queue.digest() == before


def test_batches_and_what_is_staged() -> None:
    queue = Queue()
    publish(queue, "s", "r", 0, 3)
    publish(queue, "s", "r", 4, 5)
    made = Stages()
    made.put(queue, 5, 0, count=2)
    made.put(queue, 5, 1, count=4)
    made.put(queue, 5, 1, count=1)
    _, (row,) = sinks_of(queue.state, "", "", 9)
    assert row == ("s", "r", 1, 4, ((0, 3), (4, 5)), 2, 7, 0)
    queue.do(commands.SinkPublish("s", "r", 1, 4, ((0, 0, 1),), expires_ms=60))
    _, (row,) = sinks_of(queue.state, "", "", 9)
    assert row[-1] == queue.now + 60
