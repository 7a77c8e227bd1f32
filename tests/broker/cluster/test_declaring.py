"""A declaration whose queue is deleted before its messages are counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from warren_broker.broker.declaring import DELETIONS_MAX, EMPTY, Declared, declare_and_count
from warren_broker.counting.counters import Counters
from warren_machines.metadata.commands import QueueIs
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import StatReply
from warren_wire import errors
from warren_wire.admin.queues import DeclareQueueRequest
from warren_wire.queue_values.config import QueueConfig

COUNTS = StatReply(3, 0, 0, 0, 0, 0, 0, 0, (), ())
GONE = errors.no_queue("q", "/")


class Deleting:
    """A broker whose queue is deleted so many times just before it is counted."""

    def __init__(self, deletions: int, there_again: bool = False) -> None:
        self.deletions = deletions
        self.there_again = there_again
        self.group = 10
        self.cluster = SimpleNamespace(counters=Counters())

    def counted(self) -> tuple[int, int]:
        """Declarations, and those of new queues."""
        found = self.cluster.counters.read()
        return found["queues_declared", ()], found["queues_created", ()]

    def declare_queue(self, vhost: str, name: str, *, done: Any, **properties: Any) -> None:
        created = self.group > 10 and not self.there_again
        record = QueueRecord(vhost, name, self.group, QueueConfig(vhost, name), (), ("n1",), "n1")
        done(QueueIs(record, created))

    def queue_counts(self, queue: QueueRecord, touch: bool, done: Any) -> None:
        assert touch and queue.group == self.group
        if self.deletions:
            self.deletions -= 1
            self.group += 1
            done(GONE)
        else:
            done(COUNTS)


def declared(broker: Deleting) -> Declared | errors.Refusal:
    found: list[Declared | errors.Refusal] = []
    request = DeclareQueueRequest("q")
    declare_and_count(broker, "/", request, 1, found.append)  # type: ignore[arg-type]
    (result,) = found
    return result


def test_it_is_created_again() -> None:
    broker = Deleting(1)
    result = declared(broker)
    assert isinstance(result, Declared)
    assert broker.counted() == (1, 1)
    assert result.created and result.queue.group == 11 and result.counts == EMPTY


@pytest.mark.parametrize("deletions", [0, 1, DELETIONS_MAX])
def test_another_client_may_have_declared_it_first(deletions: int) -> None:
    broker = Deleting(deletions, there_again=True)
    result = declared(broker)
    assert isinstance(result, Declared)
    assert broker.counted() == (1, 0), "one declaration, however often it was tried"
    assert not result.created and result.counts == COUNTS


def test_it_is_refused_when_that_does_not_end() -> None:
    result = declared(Deleting(DELETIONS_MAX + 1, there_again=True))
    assert isinstance(result, Declared) and result.counts is GONE
