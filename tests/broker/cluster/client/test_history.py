"""Recent histories on a cluster of three model nodes: what a newly bound queue is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.membership.clusters import begun, declare
from broker.cluster.membership.test_absences import Published
from broker.cluster.universe import Universe
from warren_broker.cluster.client.reads import FETCH_BYTES_MAX
from warren_machines.metadata import commands as metadata
from warren_wire.block.block import Block
from warren_wire.kernel import MessageTable, Route

LENGTH = 5
STORE = "amq.history.h"


@pytest.fixture
def universe() -> Iterator[Universe]:
    """An exchange that keeps five messages, and queue q, which is not bound."""
    made = begun()
    exchange(made, "h", "x-recent-history", {"x-recent-history-length": LENGTH})
    yield made
    made.close()


def exchange(universe: Universe, name: str, kind: str, arguments: dict[str, Any]) -> None:
    """Declare an exchange through b."""
    asked = metadata.DeclareExchange("/", name, kind, True, False, False, arguments)
    answer = universe.call(
        "b",
        lambda broker, done: broker.definitions.submit(broker.exchange_declaration(asked), done),
    )
    assert isinstance(answer, metadata.MetadataDone), answer


def publish(universe: Universe, bodies: Any, node: str = "a", to: str = "h") -> Published:
    """Publish these bodies as one run; not confirmed yet."""
    published = Published(universe)
    table = MessageTable()
    for body in bodies:
        table.append(Route(to.encode(), b"key", False), b"\0\0", str(body).encode())
    one = universe.running[node]
    one.loop.call_soon(lambda: one.broker.publishing.publish("/", table, 0, table.count, published))
    return published


def bind(universe: Universe, name: str = "q", node: str = "c", **more: Any) -> Any:
    """Bind a queue, or an exchange with to_queue=False, to h."""
    command = metadata.Bind("/", "h", name, **{"to_queue": True, **more})
    return universe.call(node, lambda broker, done: broker.bind(command, done))


def bodies(universe: Universe, name: str = "q") -> list[str]:
    """The bodies of a queue's ready messages."""
    broker = next(iter(universe.running.values())).broker
    queue = broker.definitions.state.queue("/", name)
    assert queue is not None
    runs: list[Any] = []
    blocks: list[Any] = []
    broker.reading.runs(queue.group, "", 0, 0, 1 << 20, runs.append)
    universe.until(lambda: runs, "the runs")
    if not runs[0]:
        return []
    broker.reading.block(queue.group, runs[0], FETCH_BYTES_MAX, blocks.append)
    universe.until(lambda: blocks, "the block")
    block = Block.decode(blocks[0][1])
    return [bytes(block.body(i)).decode() for i in range(len(block))]


def test_a_new_queue_gets_the_last_messages_and_then_the_others(universe: Universe) -> None:
    assert publish(universe, range(3)).all_confirmed()
    assert publish(universe, range(3, 9), "b").all_confirmed()
    assert bodies(universe, STORE) == ["4", "5", "6", "7", "8"]
    assert isinstance(bind(universe), metadata.MetadataDone)
    assert bodies(universe) == ["4", "5", "6", "7", "8"]
    assert isinstance(bind(universe), metadata.BindingIs), "a repeat brings nothing"
    assert publish(universe, ["live"]).all_confirmed()
    assert bodies(universe) == ["4", "5", "6", "7", "8", "live"]


def test_an_empty_history_and_a_binding_of_another_exchange(universe: Universe) -> None:
    assert isinstance(bind(universe), metadata.MetadataDone)
    assert bodies(universe) == []
    exchange(universe, "other", "fanout", {})
    command = metadata.Bind("/", "other", "q", True)
    answer = universe.call("a", lambda broker, done: broker.bind(command, done))
    assert isinstance(answer, metadata.MetadataDone)


def test_a_new_exchange_routes_the_last_messages(universe: Universe) -> None:
    for name, key in (("direct", "key"), ("elsewhere", "none")):
        exchange(universe, name, "direct", {})
        command = metadata.Bind("/", name, "q", True, key)
        universe.call("a", lambda broker, done, it=command: broker.bind(it, done))
    assert publish(universe, range(7)).all_confirmed()
    assert isinstance(bind(universe, "elsewhere", to_queue=False), metadata.MetadataDone)
    assert bodies(universe) == []
    assert isinstance(bind(universe, "direct", to_queue=False), metadata.MetadataDone)
    assert bodies(universe) == ["2", "3", "4", "5", "6"]


def test_it_outlives_its_leader_and_all_nodes(universe: Universe) -> None:
    assert publish(universe, range(9)).all_confirmed()
    store = universe.running["a"].broker.definitions.state.queue("/", STORE)
    assert store is not None
    leader = universe.logs[store.group].leader
    assert leader is not None
    universe.kill(leader)
    left = next(name for name in "abc" if name != leader)
    assert isinstance(bind(universe, node=left), metadata.MetadataDone)
    universe.start(leader)
    universe.until(universe.ready, "the node is back")
    assert bodies(universe) == ["4", "5", "6", "7", "8"]
    universe.restart("abc")
    declare(universe, "r")
    assert isinstance(bind(universe, "r"), metadata.MetadataDone)
    assert bodies(universe, "r") == ["4", "5", "6", "7", "8"]


def test_a_message_on_its_way_to_the_store_reaches_a_new_queue(universe: Universe) -> None:
    """Without the second look at the bindings it would be neither in the history nor routed."""
    store = universe.running["a"].broker.definitions.state.queue("/", STORE)
    assert store is not None
    leader = universe.logs[store.group].leader
    assert leader is not None
    far = next(name for name in "abc" if name != leader)
    near = next(name for name in "abc" if name not in (leader, far))
    published = publish(universe, ["late"], far)
    universe.running[far].turn()
    held = [letter for letter in universe.mail if letter[0] == far and b"late" in letter[2]]
    assert held, "on its way to the store's leader"
    universe.mail = [letter for letter in universe.mail if letter not in held]
    assert isinstance(bind(universe, node=near), metadata.MetadataDone)
    assert bodies(universe) == []
    assert not published.complete
    universe.mail += held
    assert published.all_confirmed()
    assert bodies(universe) == ["late"] and bodies(universe, STORE) == ["late"]


@pytest.mark.parametrize("when", range(0, 24, 3))
def test_whatever_the_moment_of_a_binding_no_message_is_missing(
    universe: Universe, when: int
) -> None:
    """Messages may come twice then, but in no queue is one missing."""
    published = [publish(universe, [number], "abc"[number % 3]) for number in range(3)]
    answers: list[Any] = []
    one = universe.running["c"]
    bound = metadata.Bind("/", "h", "q", True)
    for step in range(60):
        if step == when:
            one.loop.call_soon(lambda: one.broker.bind(bound, answers.append))
        universe.step()
        if step < LENGTH - 3:
            published.append(publish(universe, [3 + step], "abc"[step % 3]))
    assert all(each.all_confirmed() for each in published)
    universe.until(lambda: answers, "bind-ok")
    assert set(bodies(universe)) == {str(number) for number in range(LENGTH)}
