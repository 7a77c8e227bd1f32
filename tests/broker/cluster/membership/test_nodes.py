"""Nodes leave the cluster, are put into maintenance and are stopped."""

from __future__ import annotations

import pytest

from broker.cluster.membership import clusters
from broker.cluster.universe import Universe
from warren_wire import errors
from warren_wire.admin import members as values


@pytest.mark.specification("quorum-queues: the forget_cluster_node command will automatically")
def test_a_forgotten_node_is_gone_for_good(universe: Universe) -> None:
    clusters.declare(universe, "alone", arguments={"x-queue-type": "classic"})
    universe.kill("a")
    begun_it = clusters.forget(universe, "a")
    assert begun_it == values.Forgetting("a", 1, (("/", "alone"),))

    def in_order() -> bool:
        if "a" not in universe.logs[0].membership():
            queues = universe.running["b"].broker.definitions.state.queues()
            assert all("a" not in universe.logs[queue.group].membership() for queue in queues)
        return clusters.gone(universe, "a") and clusters.settled(universe, "bc")

    universe.until(in_order, "a is gone")
    universe.start("a")
    for _ in range(100):
        universe.step()
    assert not universe.running["a"].broker.definitions.ready
    assert "was removed from the cluster" in universe.refusals["a"]
    universe.kill("a")
    universe.wipe("a")
    universe.start("a")
    universe.until(universe.ready, "with an empty disk it is a new node")
    assert universe.logs[0].membership().voters == ("a", "b", "c")
    assert clusters.wanted(universe) == ("b", "c")


def test_forgetting_survives_a_death_at_every_step() -> None:
    def make() -> Universe:
        universe = clusters.begun("abcd", queue=("a", "b", "d"))
        universe.kill("d")
        return universe

    clusters.with_a_death_at_every_step(
        make,
        lambda u: clusters.forget(u, "d"),
        lambda u: clusters.gone(u, "d") and clusters.settled(u, "ab"),
        at_least=5,
    )


def test_a_node_in_maintenance_leads_nothing_until_it_is_revived(universe: Universe) -> None:
    for number in range(5):
        clusters.declare(universe, f"r{number}")
    told: list[bool] = []
    universe.running["a"].broker.maintenance.on_drained.append(told.append)
    status = clusters.ask(universe, lambda m, done: m.nodes.drain("a", done))
    assert status.node.drained
    universe.until(lambda: all(log.leader != "a" for log in universe.logs.values()), "a leads none")
    assert told == [True]
    assert universe.until(
        lambda: clusters.ask(universe, lambda m, done: m.nodes.node_status("a", done)).done,
        "it is done",
    )
    answer = clusters.ask(universe, lambda m, done: m.grow("a", "all", ".*", ".*", done))
    assert isinstance(answer, errors.PreconditionFailed) and "revive it first" in answer.detail
    call = clusters.declaration("fresh", {**clusters.QUORUM, "x-quorum-initial-group-size": 2})
    fresh = universe.call("b", call).queue
    assert fresh.nodes == ("b", "c")
    assert not clusters.ask(universe, lambda m, done: m.nodes.revive("a", done)).node.drained
    universe.until(lambda: told == [True, False], "it is told")


def test_a_start_ends_maintenance(universe: Universe) -> None:
    clusters.ask(universe, lambda m, done: m.nodes.drain("b", done))
    universe.kill("b")
    universe.start("b")
    universe.until(universe.ready, "b is back")
    assert not universe.running["b"].broker.maintenance.drained
    assert not clusters.ask(universe, lambda m, done: m.nodes.node_status("b", done)).node.drained


def test_who_may_be_stopped(universe: Universe) -> None:
    clusters.declare(universe, "pair", 2)
    pair = clusters.wanted(universe, "pair")
    for name in "abc":
        found = clusters.ask(universe, lambda m, done, n=name: m.nodes.quorum_critical(n, done))
        critical = (values.QueueName("/", "pair"),) if name in pair else ()
        assert found == values.QuorumCritical(name, False, critical, len(critical))
    universe.kill("c")
    found = clusters.ask(universe, lambda m, done: m.nodes.quorum_critical("b", done))
    assert found.metadata and values.QueueName("/", "q") in found.queues and not found.safe
    universe.wipe("c")
    universe.start("c")
    found = clusters.ask(universe, lambda m, done: m.nodes.quorum_critical("b", done))
    assert not found.safe, "an empty disk counts for nothing yet"
    universe.until(lambda: clusters.settled(universe, "abc"), "c is whole")
