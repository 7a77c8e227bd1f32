"""What a page of queues may take of a node: names are sorted after changes, columns are reused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from warren_broker.cluster.queue_numbers import COLUMN_GROUPS, REUSED_MS_MAX, Column, QueueNumbers
from warren_broker.cluster.sorted_names import SortedNames

GROUPS = 3 * COLUMN_GROUPS


class Names(dict[str, Any]):
    """Queues by name, which count how often they are all looked at."""

    looks = 0

    def __iter__(self) -> Any:
        self.looks += 1
        return super().__iter__()


class World:
    """A node that leads many queues; each turn of its loop takes `turn_ms`."""

    def __init__(self, turn_ms: int) -> None:
        self.turn_ms = turn_ms
        self.now_ms = 1_000
        self.reads = 0
        self.turns: list[Any] = []
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        loop = SimpleNamespace(clock=clock, call_later=lambda _, call: self.turns.append(call))
        host = SimpleNamespace(
            groups=lambda: tuple(range(GROUPS)), is_leader=lambda group: True, state=self.state
        )
        cluster: Any = SimpleNamespace(loop=loop, host=host, set_aside=None)
        samples: Any = SimpleNamespace(queues=lambda: range(GROUPS))
        self.numbers = QueueNumbers(cluster, samples)

    def state(self, group: int) -> Any:
        self.reads += 1
        return SimpleNamespace(consumer_count=group % 2)

    def ask(self, told: list[Column]) -> None:
        self.numbers.column("consumers", told.append)

    def run(self) -> None:
        while self.turns:
            self.now_ms += self.turn_ms
            self.turns.pop(0)()


def test_a_column_is_read_in_turns_and_once() -> None:
    world, told = World(turn_ms=2), []
    world.ask(told)
    assert world.reads == COLUMN_GROUPS and not told
    world.ask(told)
    world.run()
    assert world.reads == GROUPS
    assert told[0] is told[1] and len(told[0]) == GROUPS // 2, "those with 0 are left out"


def test_asking_often_takes_a_bounded_part_of_the_time() -> None:
    world, told = World(turn_ms=10), []
    world.ask(told)
    world.run()
    for _ in range(39):
        world.now_ms += 10
        world.ask(told)
    assert world.reads == GROUPS, "reading took 20 ms: it is told again for 400"
    world.now_ms += 10
    world.ask(told)
    world.run()
    assert world.reads == 2 * GROUPS


def test_no_column_is_older_than_a_refresh() -> None:
    world, told = World(turn_ms=5_000), []
    world.ask(told)
    world.run()
    world.now_ms += REUSED_MS_MAX
    world.ask(told)
    assert world.reads > GROUPS


def test_names_are_sorted_after_changes_only() -> None:
    queues = Names(dict.fromkeys(("b", "c", "a")))
    scope: Any = SimpleNamespace(version=1, queues=queues, bindings={})
    sorted_names = SortedNames()

    def names() -> list[str]:
        work = sorted_names.queues("/", scope)
        try:
            while True:
                next(work)
        except StopIteration as ended:
            found: list[str] = ended.value
            return found

    assert names() == names() == ["a", "b", "c"]
    assert queues.looks == 1
    queues["0"] = None
    scope.version = 2
    assert names() == ["0", "a", "b", "c"]
    sorted_names.forget({})
    assert names() and queues.looks == 3


def test_a_column_of_a_newer_node_is_empty() -> None:
    world, told = World(turn_ms=1), []
    world.numbers.column("messages_of_the_future", told.append)
    assert told == [{}]
