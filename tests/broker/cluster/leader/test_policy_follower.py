"""Queues follow their policies: at once, after any failure, and never a policy that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from broker.cluster.membership.clusters import anybody, begun, declare
from broker.cluster.universe import Universe
from warren_broker.cluster.leader.policy_follower import PolicyFollower
from warren_machines.metadata.commands import AnyCommand, Barrier, ClearPolicy, SetPolicy
from warren_machines.metadata.policy_index import PolicyIndex
from warren_machines.metadata.records import Policy
from warren_machines.queue.commands import Configure
from warren_wire.queue_values.config import QueueConfig

GROUP = 7
QUEUE = SimpleNamespace(vhost="/", name="q", config=SimpleNamespace(followed_as="quorum"))


def limit(count: int, name: str = "p") -> SetPolicy:
    """The command for a policy of every queue whose name begins with q."""
    return SetPolicy(Policy("/", name, "^q", {"max-length": count}))


@pytest.fixture
def universe() -> Iterator[Universe]:
    made = begun()
    yield made
    made.close()


def define(universe: Universe, *some: AnyCommand, node: str = "a") -> None:
    """Change the definitions through a node; the commands go together."""
    for command in some[:-1]:
        universe.running[node].broker.definitions.submit(command, lambda reply: None)
    universe.call(node, lambda broker, done: broker.definitions.submit(some[-1], done))


def limits(universe: Universe, queue: str = "q") -> list[int | None]:
    """The maximum length that each running member has applied."""
    record = universe.running[anybody(universe)].broker.definitions.state.queue("/", queue)
    assert record is not None
    members = [universe.member(node, record.group) for node in universe.running]
    return [member.state.config.max_length for member in members if member is not None]


def test_a_live_queue_follows_and_stops_following(universe: Universe) -> None:
    define(universe, limit(5))
    universe.until(lambda: limits(universe) == [5, 5, 5], "every member has the limit")
    define(universe, limit(3, "stronger"), limit(9), node="b")
    assert universe.until(lambda: limits(universe) == [9, 9, 9], "the first by name applies")
    define(universe, ClearPolicy("/", "p"), node="c")
    universe.until(lambda: limits(universe) == [3, 3, 3], "the other policy applies")
    define(universe, ClearPolicy("/", "stronger"))
    universe.until(lambda: limits(universe) == [None] * 3, "no limit is left")


def test_a_new_queue_begins_with_its_policy(universe: Universe) -> None:
    define(universe, limit(5))
    record = declare(universe, "q2").queue
    assert record.initial is not None and record.initial.max_length == 5
    assert record.config.max_length is None, "its own settings are kept apart"
    universe.until(lambda: limits(universe, "q2") == [5, 5, 5], "every member has it")
    assert all(entry[0].name != "COMMAND" for entry in universe.logs[record.group].entries)
    assert declare(universe, "other").queue.initial is None
    define(universe, ClearPolicy("/", "p"))
    universe.until(lambda: limits(universe, "q2") == [None] * 3, "it stops following")


def test_a_policy_that_is_set_and_cleared_at_once_leaves_nothing(universe: Universe) -> None:
    for _ in range(3):
        define(universe, limit(5), ClearPolicy("/", "p"))
    for _ in range(50):
        universe.step()
    assert limits(universe) == [None] * 3


def test_the_last_of_several_settings_that_wait_counts(
    universe: Universe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the leadership is being transferred nothing can be proposed."""
    record = universe.running["a"].broker.definitions.state.queue("/", "q")
    assert record is not None
    leader = universe.logs[record.group].leader
    assert leader is not None
    effects = universe.running[leader].broker.cluster.effects
    propose, busy = effects._propose, [True]
    monkeypatch.setattr(
        effects, "_propose", lambda group, command: not busy[0] and propose(group, command)
    )
    for count in (5, 9, 5):
        define(universe, limit(count))
        for _ in range(10):
            universe.step()
    busy.clear()
    busy.append(False)
    universe.until(lambda: limits(universe) == [5, 5, 5], "what was set last")


@pytest.mark.parametrize("dies_at", range(1, 8))
def test_whoever_dies_the_queue_follows(universe: Universe, dies_at: int) -> None:
    # The nth lasting step of the change is never done, and its node restarts later.
    universe.arm(dies_at)
    define(universe, limit(5), node="b")
    if universe.died == "b":
        universe.until(lambda: "b" in universe.running and universe.ready(), "b is back")
        define(universe, limit(5), node="b")
    universe.until(lambda: limits(universe) == [5, 5, 5], "every member has the limit")


def test_a_leader_that_was_away_follows_when_all_have_restarted(universe: Universe) -> None:
    define(universe, limit(5))
    universe.until(lambda: limits(universe) == [5, 5, 5], "every member has the limit")
    for name in "abc":
        universe.kill(name)
    for name in "abc":
        universe.start(name)
    universe.until(lambda: universe.ready() and limits(universe) == [5, 5, 5], "as before")


class Alone:
    """A follower with one queue, led here, over definitions that are behind."""

    def __init__(self) -> None:
        self.applied = QueueConfig("/", "q")
        self.known = self.applied
        self.commands: list[Any] = []
        self.barriers: list[Any] = []
        self.index = PolicyIndex()
        self.compared = 0
        self.turns: list[Any] = []
        self.definitions: Any = SimpleNamespace(
            ready=True,
            state=SimpleNamespace(groups={GROUP: QUEUE}),
            policies=lambda vhost: self.index,
            config=self.config,
            submit=self.submit,
            on_policies=[],
            on_ready=[],
        )
        self.cluster: Any = SimpleNamespace(
            on_led=[],
            loop=SimpleNamespace(call_later=lambda after, call: self.turns.append(call)),
            effects=SimpleNamespace(
                led={GROUP}, command=lambda group, command: self.commands.append(command)
            ),
            host=SimpleNamespace(
                is_leader=lambda group: True,
                state=lambda group: SimpleNamespace(config=self.applied),
            ),
        )
        self.follower = PolicyFollower(self.cluster, self.definitions)

    def submit(self, command: Any, done: Any, forever: bool) -> None:
        assert command == Barrier() and forever
        self.barriers.append(done)

    def config(self, queue: Any) -> QueueConfig:
        self.compared += 1
        self.index.of_queue(queue.name, "quorum")
        return self.known

    def changed(self, max_length: int | None) -> QueueConfig:
        """The policies known here change."""
        self.known = QueueConfig("/", "q", max_length=max_length)
        self.definitions.on_policies[0](("/",))
        return self.known

    def answer(self) -> None:
        self.barriers.pop(0)(None)


def test_a_leader_that_is_behind_does_not_bring_back_a_policy_that_was_cleared() -> None:
    world = Alone()
    world.known = QueueConfig("/", "q", max_length=1)
    world.cluster.on_led[0](GROUP)
    assert not world.commands, "first the barrier"
    world.known = world.applied  # with the barrier's entry this node learns that it was cleared
    world.answer()
    assert not world.commands and not world.barriers


def test_a_command_on_its_way_counts_as_applied() -> None:
    world = Alone()
    first = world.changed(5)
    world.answer()
    assert world.commands == [Configure(first)]
    back = world.changed(None)
    world.answer()
    assert world.commands[1:] == [Configure(back)], "the state shows no difference"
    world.changed(None)
    assert not world.barriers


def test_a_queue_that_differs_while_a_barrier_is_under_way_waits_for_the_next() -> None:
    world = Alone()
    world.changed(5)
    world.changed(6)
    assert len(world.barriers) == 1
    world.answer()
    assert [command.config.max_length for command in world.commands] == [6]
    assert len(world.barriers) == 1, "what was asked after the first barrier needs another one"
    world.answer()
    assert len(world.commands) == 1 and not world.barriers


def test_fewer_queues_are_compared_in_a_turn_where_patterns_take_many_steps() -> None:
    """Five hundred queues were compared in one turn, whatever the policies' patterns cost."""
    names = [f"q{at}" + "xa" * 120 for at in range(40)]
    for pattern, turns in (("^q", 1), ("a.{240}[cd]", 10)):
        world = Alone()
        world.index = PolicyIndex(
            user={f"p{at}": Policy("/", f"p{at}", pattern, {"max-length": 5}) for at in range(3)}
        )
        groups = {
            at: SimpleNamespace(vhost="/", name=name, config=SimpleNamespace(followed_as="quorum"))
            for at, name in enumerate(names)
        }
        world.definitions.state.groups = groups
        world.cluster.effects.led = set(groups)
        world.definitions.on_policies[0](("/",))
        took = 1
        while world.turns:
            took += 1
            world.turns.pop()()
        assert (took >= turns, world.compared) == (True, len(names))
        assert took == 1 or turns > 1
