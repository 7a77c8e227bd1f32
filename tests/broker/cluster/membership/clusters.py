"""Whole clusters with a queue, asked as an operator asks: for tests of members and nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.cluster.universe import Universe
from warren_machines.metadata.commands import QueueIs
from warren_wire import errors

DEATHS_MAX = 60
QUORUM = {"x-queue-type": "quorum"}


def begun(nodes: str = "abc", queue: tuple[str, ...] = ("a", "b", "c"), **more: Any) -> Universe:
    """A cluster that runs, with the queue q; nodes after `abc` have joined it."""
    made = Universe("abc", **more)
    made.until(made.ready, "the cluster is formed")
    for name in nodes[3:]:
        made.start(name)
        made.until(made.ready, f"{name} has joined")
    declare(made, "q", len(queue))
    have = wanted(made)
    for name in queue:
        if name not in have:
            made.call("a", lambda b, done, n=name: b.membership.add_member("/", "q", n, done))
    for name in have:
        if name not in queue:
            made.call("a", lambda b, done, n=name: b.membership.delete_member("/", "q", n, done))
    made.until(lambda: settled(made, queue), "the queue is where it is to be")
    return made


def declaration(name: str, arguments: dict[str, Any]) -> Callable[[Any, Any], None]:
    """Return a call of a broker that declares a durable queue."""
    return lambda broker, done: broker.declare_queue(
        "/",
        name,
        durable=True,
        arguments=arguments,
        done=done,
    )


def declare(universe: Universe, name: str, size: int = 3, arguments: Any = QUORUM) -> QueueIs:
    """A queue, declared through a."""
    given = dict(arguments)
    if given.get("x-queue-type") == "quorum":
        given["x-quorum-initial-group-size"] = size
    answer = universe.call("a", declaration(name, given))
    assert isinstance(answer, QueueIs), answer
    return answer


def anybody(universe: Universe) -> str:
    """A node that knows the definitions."""
    return universe.until(
        lambda: next(
            (
                name
                for name, one in sorted(universe.running.items())
                if one.broker.definitions.ready
            ),
            None,
        ),
        "somebody is ready",
    )


def wanted(universe: Universe, name: str = "q") -> tuple[str, ...]:
    """Where the queue is to be."""
    one = universe.running[anybody(universe)]
    queue = one.broker.definitions.state.queue("/", name)
    return queue.nodes if queue else ()


def settled(universe: Universe, nodes: Any, name: str = "q") -> bool:
    """Group, definitions and disks agree on the queue's members."""
    for one in universe.running.values():
        queue = one.broker.definitions.state.queue("/", name)
        if queue is None or queue.nodes != tuple(sorted(nodes)) or queue.leaving:
            return False
    log = universe.logs[queue.group]
    members = log.membership()
    held = {node for node in universe.running if queue.group in universe.disks[node]}
    return (
        members.voters == queue.nodes
        and not members.learners
        and log.committed == len(log.entries)
        and log.leader is not None
        and held == set(nodes) & universe.running.keys()
        and all(universe.counts(log, node) for node in set(nodes) & universe.running.keys())
    )


def ask(universe: Universe, call: Callable[[Any, Any], None]) -> Any:
    """Ask until a live node answers; after a refusal that says `try again` ask again."""

    def answered() -> Any:
        answer = universe.call(
            anybody(universe), lambda broker, done: call(broker.membership, done)
        )
        return None if isinstance(answer, errors.Unavailable) else answer

    return universe.until(answered, "an answer")


def with_a_death_at_every_step(
    make: Callable[[], Universe],
    ordered: Callable[[Universe], None],
    done: Callable[[Universe], bool],
    at_least: int,
) -> None:
    """Order something, and kill the node that takes the n-th step, for every n."""
    for number in range(1, DEATHS_MAX):
        if not _with_a_death(make(), number, ordered, done):
            assert number > at_least, f"only {number - 1} steps to die at"
            return
    raise AssertionError(f"no end after {DEATHS_MAX} deaths")


def _with_a_death(
    universe: Universe,
    number: int,
    ordered: Callable[[Universe], None],
    done: Callable[[Universe], bool],
) -> bool:
    """Whether there was one; everything is as ordered in the end."""
    universe.arm(number)
    ordered(universe)  # the node that is asked may die: then another one is asked
    universe.until(lambda: universe.died or done(universe), f"death {number} or the end")
    if universe.died is not None:
        universe.until(lambda: universe.died in universe.running, "it is back")
        universe.until(lambda: universe.ready() and done(universe), f"the end after {number}")
    universe.close()
    return universe.died is not None


def gone(universe: Universe, name: str) -> bool:
    """The cluster knows that node no longer."""
    return name not in universe.logs[0].membership() and all(
        name not in one.broker.definitions.state.nodes for one in universe.running.values()
    )


def forget(universe: Universe, name: str) -> Any:
    """Wait until it is begun; a node that has left is not known any more."""

    def answered() -> Any:
        answer = ask(universe, lambda m, done: m.nodes.forget(name, done))
        return None if isinstance(answer, errors.PreconditionFailed) else answer

    return universe.until(answered, "it is being forgotten")
