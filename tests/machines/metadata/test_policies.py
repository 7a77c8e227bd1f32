"""Policies as definitions: set, cleared, restored, and which of them an object follows."""

from __future__ import annotations

from typing import Any

import pytest

from machines.metadata.world import World
from machines.routing.router import router
from warren_machines.metadata import runtime_parameters
from warren_machines.metadata.changes import PoliciesChanged
from warren_machines.metadata.commands import AddVhost, ClearPolicy, DeleteVhost, SetPolicy
from warren_machines.metadata.policy_index import PolicyIndex
from warren_machines.metadata.records import Policy, Vhost
from warren_wire.errors import NotFound, PreconditionFailed


def policy(name: str, pattern: str = ".*", **more: Any) -> Policy:
    """A policy of the first vhost."""
    definition = more.pop("definition", {"max-length": 5})
    return Policy("/", name, pattern, definition, **more)


def index(world: World) -> PolicyIndex:
    """The first vhost's policies."""
    return world.state.scopes["/"].policies


def followed(world: World, queue: str, kind: Any = "quorum") -> tuple[str, str]:
    """The names of the policies that a queue follows."""
    found = index(world).of_queue(queue, kind)
    return found.policy, found.operator_policy


def test_the_highest_priority_applies_and_among_equals_the_first_name() -> None:
    world = World()
    for one in (policy("b", "^q"), policy("a", "^q", priority=-1), policy("c", "^q")):
        world.do(SetPolicy(one))
    assert followed(world, "q1") == ("b", "")
    assert followed(world, "other") == ("", "")
    world.do(SetPolicy(policy("d", "q1$", priority=3)))
    assert followed(world, "q1") == ("d", "") and followed(world, "q2") == ("b", "")
    world.do(ClearPolicy("/", "b"))
    assert followed(world, "q2") == ("c", "")


def test_policies_and_operator_policies_are_apart_and_merged() -> None:
    world = World()
    world.do(SetPolicy(policy("p", definition={"max-length": 9, "message-ttl": 3})))
    world.do(SetPolicy(policy("p", definition={"max-length": 5}, operator=True)))
    assert followed(world, "q") == ("p", "p")
    assert index(world).of_queue("q", "quorum").definition == {"max-length": 5, "message-ttl": 3}
    world.do(ClearPolicy("/", "p"))
    assert followed(world, "q") == ("", "p")


def test_apply_to() -> None:
    world = World()
    world.do(SetPolicy(policy("classic", apply_to="classic_queues")))
    world.do(SetPolicy(policy("quorum", apply_to="quorum_queues")))
    world.do(SetPolicy(policy("x", definition={"alternate-exchange": "y"}, apply_to="exchanges")))
    assert followed(world, "q") == ("quorum", "")
    assert followed(world, "q", "classic") == ("classic", "")
    assert index(world).of_exchange("any").policy == "x"


def test_a_policy_whose_keys_are_for_the_other_kind_makes_way_for_the_next() -> None:
    world = World()
    world.do(SetPolicy(policy("quorums", definition={"delivery-limit": 5}, priority=9)))
    world.do(SetPolicy(policy("every")))
    assert followed(world, "q") == ("quorums", "")
    assert followed(world, "q", "classic") == ("every", "")


def test_a_change_is_reported_once_and_a_repeat_changes_nothing() -> None:
    world = World()
    world.do(SetPolicy(policy("p")))
    assert PoliciesChanged("/") in world.changes
    world.do(SetPolicy(policy("p")))
    assert not world.changes
    with pytest.raises(NotFound, match="no policy 'q' in vhost '/'"):
        world.do(ClearPolicy("/", "q"))
    with pytest.raises(NotFound, match="no operator policy 'p'"):
        world.do(ClearPolicy("/", "p", operator=True))
    with pytest.raises(NotFound, match="no vhost 'gone'"):
        world.do(SetPolicy(Policy("gone", "p", ".*", {"max-length": 1})))
    assert not world.changes


def test_a_vhost_has_a_bounded_number_of_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_parameters, "POLICIES_MAX", 2)
    world = World()
    for name in "ab":
        world.do(SetPolicy(policy(name)))
    with pytest.raises(PreconditionFailed, match="2 is the most"):
        world.do(SetPolicy(policy("c")))
    world.do(SetPolicy(policy("c", operator=True)))
    world.do(SetPolicy(policy("b", priority=3)))


def test_policies_go_with_their_vhost() -> None:
    world = World()
    world.do(AddVhost(Vhost("v")))
    world.do(SetPolicy(Policy("v", "p", ".*", {"max-length": 1})))
    assert not index(world).user
    world.do(DeleteVhost("v"))
    world.do(AddVhost(Vhost("v")))
    assert world.state.scopes["v"].policies == PolicyIndex()


def test_a_snapshot_keeps_policies() -> None:
    world = World()
    world.do(SetPolicy(policy("p", "^q", priority=2, apply_to="queues")))
    world.do(SetPolicy(policy("o", operator=True)))
    world.do(ClearPolicy("/", "o", operator=True))
    restored = world.machine.restore(world.machine.snapshot(world.state))
    assert restored.scopes["/"].policies == index(world)
    assert restored.scopes["/"].policies.of_queue("q", "quorum").policy == "p"


def test_an_alternate_exchange_by_policy_takes_what_is_unroutable() -> None:
    world = World()
    world.exchange("x")
    world.exchange("own", arguments={"alternate-exchange": "nowhere"})
    world.exchange("rest", "fanout")
    world.declare("q")
    world.bind("rest", "q")
    topology = router(world)
    assert topology.route("/", "x", "k", None) == ()
    world.do(
        SetPolicy(
            policy("ae", "^(x|own)$", definition={"alternate-exchange": "rest"}, apply_to="all")
        )
    )
    assert topology.route("/", "x", "k", None) == ("q",)
    assert topology.route("/", "own", "k", None) == (), "the exchange's own argument goes first"
    world.do(ClearPolicy("/", "ae"))
    assert topology.route("/", "x", "k", None) == ()
