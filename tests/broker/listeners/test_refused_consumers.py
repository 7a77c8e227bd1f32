"""Consumers that were refused messages get them in their turns, whatever the others take."""

from __future__ import annotations

from collections.abc import Callable

from warren_broker.clients.refused_consumers import TURNS, RefusedConsumers

TURN_BYTES = 100


class World:
    """Queues that answer when the test says so, and give what their consumers take.

    room  bytes that the connection has left
    """

    def __init__(self) -> None:
        self.room = 0
        self.asked: list[int] = []
        self.open: list[Callable[[], None]] = []
        self.taken: dict[int, int] = {}
        self.refused = RefusedConsumers(TURN_BYTES, self.resume)

    def resume(self, consumer: int, answered: Callable[[], None]) -> None:
        self.asked.append(consumer)
        self.open.append(answered)

    def give(self, consumer: int, size: int) -> None:
        """The queue gives runs of that size as long as they are taken."""
        while self.room > 0 and self.refused.may_take(consumer):
            self.room -= size
            self.taken[consumer] = self.taken.get(consumer, 0) + size
            self.refused.took(consumer, size)
        self.refused.refuse(consumer)

    def ask(self) -> None:
        self.refused.ask(lambda: None)


def test_none_is_given_more_while_another_one_waits() -> None:
    """Before, a consumer that kept taking what had left kept the others from their messages."""
    world = World()
    world.give(1, 10)
    world.give(2, 10)
    assert world.refused.waiting() == [1, 2] and not world.refused.may_take(3)
    for _ in range(30):
        world.room = 64
        for greedy in (3, 1):
            world.give(greedy, 10)
        world.asked = []
        world.ask()
        for consumer in world.asked:
            world.give(consumer, 10)
    assert set(world.taken) == {1, 2, 3}
    assert max(world.taken.values()) - min(world.taken.values()) <= 2 * (TURN_BYTES + 10)


def test_a_large_message_does_not_keep_the_next_one_waiting() -> None:
    """1. The first fills the room in its turn, each time.  2. The second gets nothing in its own.
    3. It is the first of the next ones: it would never be served otherwise."""
    world = World()
    for consumer in (1, 2):
        world.refused.refuse(consumer)
    for _ in range(4):
        world.asked = []
        world.room = 50
        world.ask()
        for consumer in world.asked:
            world.give(consumer, 5_000)
    assert world.taken == {1: 10_000, 2: 10_000}


def test_few_are_asked_for_at_a_time_and_an_answer_brings_the_next() -> None:
    world = World()
    for consumer in range(100):
        world.refused.refuse(consumer)
    world.refused.ask(world.ask)
    assert world.asked == list(range(TURNS))
    world.open.pop()()
    assert world.asked == list(range(TURNS + 1))
    world.ask()
    assert len(world.asked) == TURNS + 2, "queues without a leader do not keep the others waiting"
    while world.open:
        world.refused.ask(world.ask)
        world.open.pop()()
    assert world.asked == list(range(100)), "in their order, each once"


def test_ten_thousand_that_have_ended_meanwhile_are_gone_through() -> None:
    world = World()

    def answer(consumer: int, answered: Callable[[], None]) -> None:
        world.asked.append(consumer)
        answered()

    world.refused = RefusedConsumers(TURN_BYTES, answer)
    for consumer in range(10_000):
        world.refused.refuse(consumer)
    world.refused.ask(world.ask)
    assert world.asked == list(range(10_000)) and not world.refused


def test_one_that_has_ended_is_not_asked_for() -> None:
    world = World()
    world.refused.refuse(1)
    world.refused.refuse(2)
    world.refused.forget(1)
    world.ask()
    assert world.asked == [2] and world.refused.may_take(7)
    world.refused.refuse(3)
    world.refused.clear()
    world.ask()
    assert world.asked == [2]
