"""What is asked of a queue that was found before its deletion is refused, and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.cluster.membership.clusters import begun
from broker.cluster.membership.test_incarnations import Nobody
from broker.cluster.universe import Universe
from sim.told import Told
from tests.wire.kernel import frames as f
from warren_broker.cluster.client.reads import ReadFailed
from warren_broker.cluster.client.routed_runs import QueuePart
from warren_machines.queue.commands import Checkout, Count, Delete, Get, Stat
from warren_wire import errors
from warren_wire.kernel import PRIORITY_DEFAULT, TTL_NONE, MessageTable, Route, Selection

SESSION = 900


@pytest.fixture
def universe() -> Iterator[Universe]:
    made = begun()
    yield made
    made.close()


def get(broker: Any, queue: Any, done: Any) -> None:
    """As when the read of a basic.get found no queue any more (`Consumers._get`)."""
    broker.consuming._take_one(queue, Get(broker.ids.consumer(), SESSION), done)


def consume(broker: Any, queue: Any, done: Any) -> None:
    number = broker.ids.consumer()
    broker.consuming.checkout(queue, Checkout(number, SESSION, "t", 10), Nobody(), done)


def ask(broker: Any, queue: Any, done: Any) -> None:
    broker.queues.ask(queue, Stat(touch=False), done)


def count(broker: Any, queue: Any, done: Any) -> None:
    broker.queue_counts(queue, True, done)


@pytest.mark.parametrize("operation", [get, consume, ask, count])
@pytest.mark.parametrize("node", ["a", "b", "c"])
def test_a_queue_that_was_deleted_meanwhile_gets_no_client(
    universe: Universe, node: str, operation: Callable[..., None]
) -> None:
    """Before: it sought the leader of the deleted queue until the node was restarted."""
    broker = universe.running[node].broker
    queue = broker.definitions.state.queue("/", "q")
    universe.call(node, lambda one, done: one.delete_queue("/", "q", False, False, 0, done))
    universe.until(lambda: queue.group not in broker.definitions.state.groups, "it is deleted")
    answer = universe.call(node, lambda one, done: operation(one, queue, done))
    assert isinstance(answer, errors.NotFound), answer
    assert broker.cluster.client(queue.group) is None
    assert not broker.consuming._groups and not broker.consuming._sessions


def test_counts_of_a_queue_that_is_deleted_meanwhile_are_not_waited_for(
    universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: a declaration waited until its time was over, and its client was told 541."""
    queue = universe.running["a"].broker.definitions.state.queue("/", "q")
    leader = universe.logs[queue.group].leader
    asking, deleting = [name for name in universe.running if name != leader]
    broker = universe.running[asking].broker
    answers: list[Any] = []
    with monkeypatch.context() as patch:  # the leader is not reached before the deletion
        patch.setattr(broker.cluster.host, "send", lambda node, buffers: False)
        broker.queue_counts(queue, True, answers.append)
        broker.reading.sinks(queue.group, "", "", 1, answers.append)
        universe.call(deleting, lambda one, done: one.delete_queue("/", "q", False, False, 0, done))
        universe.until(lambda: len(answers) == 2, "they are answered")
    assert isinstance(answers[0], errors.NotFound)
    assert answers[1] == ReadFailed("the queue was deleted", True)


def deleted_by_halves(universe: Universe, node: str) -> Any:
    """The queue, which has carried out a deletion that its node did not complete."""
    queue = universe.running[node].broker.definitions.state.queue("/", "q")
    answer = universe.call(node, lambda one, done: one.queues.ask(queue, Delete(), done))
    assert isinstance(answer, Count), answer
    assert all(queue.group in one.broker.definitions.state.groups for one in those(universe))
    return queue


def those(universe: Universe) -> list[Any]:
    return list(universe.running.values())


def is_forgotten(universe: Universe, group: int) -> bool:
    return all(
        group not in one.broker.definitions.state.groups and not one.host.stored(group)
        for one in those(universe)
    )


@pytest.mark.parametrize("node", ["a", "b", "c"])
def test_a_deletion_that_was_not_completed_is_completed_by_the_leader(
    universe: Universe, node: str
) -> None:
    """Before: the queue stayed defined; what was published to it was confirmed, and lost."""
    queue = deleted_by_halves(universe, node)
    universe.until(lambda: is_forgotten(universe, queue.group), "it is deleted")


def test_a_deletion_that_was_not_completed_is_completed_by_the_next_leader(
    universe: Universe,
) -> None:
    queue = deleted_by_halves(universe, "a")
    universe.kill(universe.logs[queue.group].leader)
    universe.until(lambda: is_forgotten(universe, queue.group), "it is deleted")


def test_a_deletion_that_was_not_completed_is_completed_after_a_restart(universe: Universe) -> None:
    queue = deleted_by_halves(universe, "a")
    universe.restart("abc")
    universe.until(lambda: is_forgotten(universe, queue.group), "it is deleted")


@pytest.mark.parametrize(("strict", "confirmed"), [(False, True), (True, False)])
def test_a_queue_that_was_deleted_while_messages_were_routed_ends_no_node(
    universe: Universe, strict: bool, confirmed: bool
) -> None:
    """Routing may take several turns: the queue that it has found may be deleted meanwhile."""
    table = MessageTable()
    table.append(Route(b"", b"gone", False), f.PLAIN, b"body", PRIORITY_DEFAULT, TTL_NONE, 0)
    whole = Selection(table, 0, table.count)
    told: list[bool] = []
    parts = [QueuePart("gone", whole, whole)]
    run = Told(lambda part, ok, refused: told.append(ok), strict=strict)
    universe.running["a"].broker.publishing.send("/", parts, run)
    assert told == [confirmed]
