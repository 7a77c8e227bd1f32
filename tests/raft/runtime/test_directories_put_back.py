"""A node's directory from before its disk was replaced is put back: the node takes part again."""

from __future__ import annotations

import shutil

from tests.raft.runtime.forming import ABC, Nodes


def replaced(nodes: Nodes, name: str, aside: str) -> None:
    """The node has another, empty directory from now on."""
    nodes.stop(name)
    shutil.move(nodes.root / name, nodes.root / aside)
    nodes.start(name)
    nodes.serves(*ABC)


def put_back(nodes: Nodes, name: str, aside: str) -> None:
    """The node has that directory again."""
    nodes.stop(name)
    shutil.rmtree(nodes.root / name)
    shutil.move(nodes.root / aside, nodes.root / name)
    nodes.start(name)


def formed(nodes: Nodes) -> str:
    """Three founders; one that does not lead."""
    nodes.form()
    leader = nodes.leader()
    return next(name for name in ABC if nodes.hosts[name] is not leader)


def test_a_founders_directory_that_is_put_back_catches_up(nodes: Nodes) -> None:
    name = formed(nodes)
    replaced(nodes, name, "founder")
    put_back(nodes, name, "founder")
    nodes.serves(*ABC)
    # A voter as what it is: the founding member again, which every node knows.
    nodes.until(
        lambda: all(
            name in host.members(0).voters and not host.members(0).id_of(name)
            for host in nodes.hosts.values()
        )
    )
    nodes.serves(*ABC)


def test_it_does_so_under_a_leader_that_has_not_met_the_directory_between(nodes: Nodes) -> None:
    name = formed(nodes)
    replaced(nodes, name, "founder")
    others = [other for other in ABC if other != name]
    nodes.stop(*others)
    put_back(nodes, name, "founder")
    for other in others:
        nodes.start(other)
    nodes.serves(*ABC)


def test_a_later_directory_that_is_put_back_catches_up(nodes: Nodes) -> None:
    name = formed(nodes)
    replaced(nodes, name, "founder")
    replaced(nodes, name, "second")
    put_back(nodes, name, "second")
    nodes.serves(*ABC)


def test_it_can_be_changed_again_and_again(nodes: Nodes) -> None:
    name = formed(nodes)
    replaced(nodes, name, "founder")
    for _ in range(3):
        put_back(nodes, name, "founder")
        nodes.serves(*ABC)
        replaced(nodes, name, "founder")
