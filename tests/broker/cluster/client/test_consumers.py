"""basic.get: when that a queue is empty is read, and when it is asked by a log entry."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from tests.machines.queue.world import Queue
from warren_broker.access import requests
from warren_broker.cluster.client.consumers import Consumers
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import Get, GetReply
from warren_raft.errors import NotLeader, TooManyReads
from warren_raft.runtime.host import UnknownGroup

QUEUE: Any = SimpleNamespace(group=5)
GET = Get(consumer=7, session=3, no_ack=False)


class Node:
    """What `Consumers` needs: the state of the queue, its client, and a host that reads.

    asked     commands for the log
    reads     what was asked to be read
    sent      commands that go to the queue without an answer
    refuses   what the host raises for a read
    """

    def __init__(self, **settings: Any) -> None:
        self.queue = Queue(**settings)
        self.asked: list[Any] = []
        self.reads: list[Any] = []
        self.sent: list[Any] = []
        self.answers: list[Any] = []
        self.refuses: Exception | None = None
        self.there = True
        self.own = SimpleNamespace(all_answered=True, consumers={}, command=self.sent.append)
        self.own.give_back_unsent = lambda consumer: False
        self.consumers = Consumers(self, count(1000).__next__)  # type: ignore[arg-type]

    @property
    def cluster(self) -> Any:
        return SimpleNamespace(client=lambda group: self.own, host=self)

    def client(self, queue: QueueRecord) -> Any:
        return self.own

    def deleted(self, queue: QueueRecord) -> bool:
        return False

    def state(self, group: int) -> Any:
        if not self.there:
            raise UnknownGroup(group, "n1")
        return self.queue.state

    def read_index(self, group: int, within_ms: int, done: Any) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.reads.append(done)

    def ask(self, queue: QueueRecord, command: Any, got: Any, late: Any) -> None:
        self.asked.append(command)
        got(GetReply(None, 0))

    def get(self) -> None:
        self.consumers.get(QUEUE, GET, self.answers.append)


def test_an_empty_queue_is_read() -> None:
    node = Node()
    node.get()
    assert not node.answers
    node.reads.pop()(True)
    assert node.answers == [requests.GotNothing()] and not node.asked
    node.consumers.session_down(GET.session, False)
    assert not node.sent, "the queue never heard of the session"


def test_a_read_that_finds_a_message_or_nothing_certain_becomes_an_entry() -> None:
    node = Node()
    node.get()
    node.queue.put(1)
    node.reads.pop()(True)
    assert node.asked == [GET]
    node = Node()
    node.get()
    node.reads.pop()(False)
    assert node.asked == [GET]


def test_what_this_node_sent_and_is_not_answered_may_be_a_message() -> None:
    node = Node()
    node.own.all_answered = False
    node.get()
    assert node.asked == [GET] and not node.reads


@pytest.mark.parametrize(
    "refusal", [NotLeader(5, "n1", None), TooManyReads(5, 1), UnknownGroup(5, "n1")]
)
def test_a_node_that_cannot_read_asks_by_an_entry(refusal: Exception) -> None:
    node = Node()
    node.refuses = refusal
    node.get()
    assert node.asked == [GET]
    node.consumers.session_down(GET.session, False)
    assert len(node.sent) == 1


def test_a_node_without_a_member_asks_by_an_entry() -> None:
    node = Node()
    node.there = False
    node.get()
    assert node.asked == [GET] and not node.reads


def test_gets_of_nothing_from_a_queue_that_was_declared_again_use_one_number() -> None:
    """Before, each of them left another consumer in the queue, until its session ended."""
    node = Node()
    node.there = False
    node.get()
    again: Any = SimpleNamespace(group=6)
    node.consumers.get(again, GET, node.answers.append)
    assert node.answers == [requests.GotNothing(), requests.GotNothing(getter=1000)]
    node.consumers.get(again, Get(1000, GET.session, False), node.answers.append)
    assert [get.consumer for get in node.asked] == [7, 1000, 1000]


@pytest.mark.parametrize("current", [True, False])
@pytest.mark.parametrize("filled", [True, False])
def test_a_session_that_ends_during_the_read_takes_no_message(current: bool, filled: bool) -> None:
    node = Node()
    node.get()
    node.consumers.session_down(GET.session, True)
    if filled:
        node.queue.put(1)
    node.reads.pop()(current)
    assert node.answers == [requests.GotNothing()] and not node.asked


def test_two_gets_of_a_session_are_read_each_for_itself() -> None:
    node = Node()
    node.get()
    node.consumers.get(QUEUE, Get(8, GET.session, False), node.answers.append)
    first, second = node.reads
    node.queue.put(1)
    first(True)
    second(True)
    assert [get.consumer for get in node.asked] == [7, 8]


@pytest.mark.parametrize(
    "settings", [{"single_active_consumer": True}, {"expires_ms": 60_000}], ids=str
)
def test_a_get_that_is_refused_or_counts_as_use_is_an_entry(settings: dict[str, Any]) -> None:
    node = Node(**settings)
    node.get()
    assert node.asked == [GET] and not node.reads


def test_a_queue_with_ready_messages_is_not_empty() -> None:
    node = Node()
    node.queue.put(1)
    node.get()
    assert node.asked == [GET] and not node.reads
