"""Durable auto-delete queues and the loss of nodes: of their own, and of their consumers'."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.cluster.membership.clusters import begun, forget
from broker.cluster.membership.test_absences import at_c, names, publish
from broker.cluster.membership.test_incarnations import Nobody
from broker.cluster.universe import Universe
from warren_broker.access import requests
from warren_machines.metadata.commands import QueueIs
from warren_machines.queue.commands import Checkout, Get, StatReply

EXPECTED_MS = 4_000
SOON_MS = 1_000
SESSION = 1
CLASSIC = {"x-queue-type": "classic"}


@pytest.fixture
def universe() -> Iterator[Universe]:
    """The auto-delete queue `results`, with a message, a consumer at b, and its leader at a."""
    made = begun(settings={"queues": {"consumer_disconnected_timeout_ms": EXPECTED_MS}})
    declare(made, "a", "results")
    made.until(lambda: all("results" in names(made, node) for node in "abc"), "all know it")
    moved(made, "a")
    assert publish(made, "", "results").all_confirmed()
    consume(made, "b")
    yield made
    made.close()


def declare(universe: Universe, node: str, name: str) -> QueueIs:
    """A durable auto-delete queue that asks for no type, as Celery's for results."""
    answer = universe.call(
        node,
        lambda broker, done: broker.declare_queue(
            "/", name, durable=True, auto_delete=True, arguments={}, done=done
        ),
    )
    assert isinstance(answer, QueueIs), answer
    return answer


def group(universe: Universe, name: str = "results") -> int:
    """The queue's group."""
    for one in universe.running.values():
        queue = one.broker.definitions.state.queue("/", name)
        if queue is not None:
            return queue.group
    raise AssertionError(f"{name} is not defined")


def moved(universe: Universe, node: str) -> None:
    """Have that node lead the queue."""
    log = universe.logs[group(universe)]
    universe._elect(log, node)
    universe.until(
        lambda: log.leader == node and universe.running[node].host.is_leader(log.group), "it leads"
    )


def consume(universe: Universe, node: str, name: str = "results", *how: bool) -> None:
    """A consumer that takes one message, and returns none; how: see `Consumers.checkout`."""

    def call(broker: Any, done: Any) -> None:
        queue = broker.definitions.state.queue("/", name)
        number = broker.ids.consumer()
        broker.consuming.checkout(queue, Checkout(number, SESSION, "t", 1), Nobody(), done, *how)

    assert universe.call(node, call) == requests.RequestDone()


def leave(universe: Universe, node: str) -> None:
    """The connection of that node's consumer ends."""
    one = universe.running[node]
    one.loop.call_soon(lambda: one.broker.consuming.session_down(SESSION, True))


def later(universe: Universe, after_ms: int) -> None:
    """Let that much time pass."""
    end = universe.now + after_ms
    universe.until(lambda: universe.now >= end, "it is later")


def defined(universe: Universe, name: str = "results") -> bool:
    """Whether any node knows the queue."""
    return any(name in names(universe, node) for node in universe.running)


def stat(universe: Universe, name: str = "results") -> StatReply:
    """The queue's counts, as soon as its leader answers."""

    def counted() -> StatReply | None:
        answer = universe.call(
            "a",
            lambda broker, done: broker.queue_counts(
                broker.definitions.state.queue("/", name), False, done
            ),
        )
        return answer if isinstance(answer, StatReply) else None

    found: StatReply = universe.until(counted, "its leader answers")
    return found


def counts(universe: Universe, name: str = "results") -> tuple[int, int]:
    """(messages, consumers) of the queue."""
    found = stat(universe, name)
    return found.messages_ready + found.messages_unacknowledged, found.consumers


def deleted_after(universe: Universe, least_ms: int) -> None:
    """It is deleted, not before that time has passed, and soon after it."""
    began = universe.now
    universe.until(lambda: not defined(universe), "it is deleted")
    assert least_ms <= universe.now - began <= least_ms + 2 * SOON_MS, universe.now - began


def test_it_is_replicated(universe: Universe) -> None:
    queue = universe.running["a"].broker.definitions.state.queue("/", "results")
    assert queue is not None and queue.replicated and queue.nodes == ("a", "b", "c")
    again = declare(universe, "b", "results")
    assert not again.created and again.queue == queue


def test_a_client_that_leaves_takes_it_along_at_once(universe: Universe) -> None:
    leave(universe, "b")
    deleted_after(universe, 0)


def test_all_nodes_end_and_its_client_finds_its_messages(universe: Universe) -> None:
    universe.restart("abc")
    universe.until(lambda: counts(universe) == (1, 0), "its consumer's node is known to have ended")
    later(universe, EXPECTED_MS // 2)
    assert not declare(universe, "c", "results").created
    consume(universe, "c")
    later(universe, 2 * EXPECTED_MS)
    assert counts(universe) == (1, 1)
    leave(universe, "c")
    deleted_after(universe, 0)


def test_all_nodes_end_and_its_client_does_not_come_back(universe: Universe) -> None:
    universe.restart("abc")
    universe.until(lambda: counts(universe) == (1, 0), "its consumer's node is known to have ended")
    later(universe, EXPECTED_MS // 2)
    universe.restart("abc")  # as long again: there was no node to connect to
    deleted_after(universe, EXPECTED_MS - SOON_MS)


def test_a_get_is_a_use_of_it_meanwhile(universe: Universe) -> None:
    universe.restart("abc")
    universe.until(lambda: counts(universe) == (1, 0), "its consumer's node is known to have ended")
    later(universe, EXPECTED_MS // 2)
    got = universe.call(
        "a",
        lambda broker, done: broker.consuming.get(
            broker.definitions.state.queue("/", "results"),
            Get(broker.ids.consumer(), SESSION, True),
            done,
        ),
    )
    assert isinstance(got, requests.GotMessage)
    later(universe, EXPECTED_MS - SOON_MS)
    assert defined(universe)
    universe.until(lambda: not defined(universe), "it is deleted")


def test_its_consumers_node_ends_and_the_client_goes_to_another_one(universe: Universe) -> None:
    universe.kill("b")
    consume(universe, "c")
    universe.start("b")
    universe.until(lambda: universe.ready() and counts(universe) == (1, 1), "b is back")
    later(universe, 2 * EXPECTED_MS)
    assert counts(universe) == (1, 1)
    leave(universe, "c")
    deleted_after(universe, 0)


def test_its_consumers_node_ends_and_comes_back_without_the_client(universe: Universe) -> None:
    universe.kill("b")
    later(universe, 2 * EXPECTED_MS)
    assert counts(universe) == (1, 1), "a consumer of a node that is away keeps it"
    universe.start("b")
    universe.until(lambda: counts(universe) == (1, 0), "b is back")
    deleted_after(universe, EXPECTED_MS - SOON_MS)


def test_its_consumers_node_ends_and_is_removed(universe: Universe) -> None:
    universe.kill("b")
    later(universe, 2 * EXPECTED_MS)
    forget(universe, "b")
    universe.until(lambda: counts(universe) == (1, 0), "b is known to be over")
    deleted_after(universe, EXPECTED_MS - SOON_MS)


def test_its_consumers_node_is_silent_for_long(universe: Universe) -> None:
    universe.cut_off("b")
    later(universe, 3 * EXPECTED_MS)
    universe.cut.clear()
    universe.until(lambda: universe.running["a"].host.connected("b"), "b is heard")
    assert counts(universe) == (1, 1)


def test_its_leader_ends(universe: Universe) -> None:
    universe.kill("a")
    assert publish(universe, "", "results", "c").all_confirmed()
    universe.start("a")
    universe.until(universe.ready, "a is back")
    assert counts(universe) == (2, 1)


def test_a_consumer_that_would_be_cancelled_as_another_node_leads_stays(universe: Universe) -> None:
    """Its cancellation would be the queue's end."""
    consume(universe, "c", "results", True)
    leave(universe, "b")
    universe.until(lambda: counts(universe) == (1, 1), "it is alone")
    moved(universe, "b")
    later(universe, 2 * EXPECTED_MS)
    assert counts(universe) == (1, 1)


def test_the_leadership_moves_before_it_deletes_the_queue(universe: Universe) -> None:
    """The next leader cannot know why there is no consumer, and waits."""
    universe.kill("b")
    universe.start("b")
    universe.until(lambda: counts(universe) == (1, 0), "b is back")
    later(universe, EXPECTED_MS // 2)
    moved(universe, "c")
    deleted_after(universe, EXPECTED_MS - SOON_MS)


def test_the_leader_ends_before_it_deletes_the_queue(universe: Universe) -> None:
    log = universe.logs[group(universe)]
    there = universe.running["c"].host.started[log.group]
    leave(universe, "b")
    universe.until(lambda: not there.state.consumer_count, "the end of the session is in the log")
    universe.kill("a")
    universe.start("a")
    universe.until(lambda: not defined(universe), "it is deleted")


@pytest.mark.parametrize("returns", [True, False])
def test_its_consumers_node_sends_its_clients_away(universe: Universe, returns: bool) -> None:
    """It is stopped, or drained: then its clients may return to it later."""
    consuming = universe.running["b"].broker.consuming
    consuming.parting = True
    leave(universe, "b")
    universe.until(lambda: counts(universe) == (1, 0), "the queue knows")
    if returns:
        later(universe, EXPECTED_MS // 2)
        consuming.parting = False
        consume(universe, "b")
        later(universe, 2 * EXPECTED_MS)
        assert counts(universe) == (1, 1)
        assert stat(universe).messages_unacknowledged == 1, "it is given what is there"
        leave(universe, "b")
    deleted_after(universe, 0 if returns else EXPECTED_MS - SOON_MS)


def test_a_consumer_that_arrives_as_the_last_one_leaves_keeps_it(universe: Universe) -> None:
    leave(universe, "b")
    consume(universe, "a")
    later(universe, 2 * EXPECTED_MS)
    assert counts(universe) == (1, 1)


def test_one_that_never_had_a_consumer_stays(universe: Universe) -> None:
    declare(universe, "a", "waiting")
    universe.restart("abc")
    later(universe, 2 * EXPECTED_MS)
    assert defined(universe, "waiting")


@pytest.mark.parametrize("durable", [True, False])
def test_a_classic_one_whose_consumers_node_ends(universe: Universe, durable: bool) -> None:
    """A transient one is deleted at once, as before."""
    at_c(universe, "classic", durable=durable, auto_delete=True, arguments=CLASSIC)
    universe.until(lambda: "classic" in names(universe, "b"), "b knows it")
    consume(universe, "b", "classic")
    universe.kill("b")
    universe.start("b")
    began = universe.now
    universe.until(lambda: not defined(universe, "classic"), "it is deleted")
    assert (universe.now - began > EXPECTED_MS) == durable


def test_a_durable_classic_one_keeps_its_messages_for_a_client_that_returns_with_its_node(
    universe: Universe,
) -> None:
    at_c(universe, "classic", auto_delete=True, arguments=CLASSIC)
    assert publish(universe, "", "classic", "c").all_confirmed()
    consume(universe, "c", "classic")
    universe.kill("c")
    universe.start("c")
    universe.until(universe.ready, "c is back")
    later(universe, EXPECTED_MS // 2)
    consume(universe, "c", "classic")
    later(universe, 2 * EXPECTED_MS)
    assert counts(universe, "classic") == (1, 1)
