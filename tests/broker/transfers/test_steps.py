"""What links and shovels make a node do in one turn: no product of what their owners choose."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from machines.metadata.world import World
from tests.line_steps import growth, lines
from warren_broker.cluster.link_logins import BY_OPERATOR, LinkLogin, LinkLogins
from warren_broker.transfers.federation.links import ExchangeLinks, FederationLinks
from warren_broker.transfers.shovel.end10 import Source10
from warren_broker.transfers.shovel.sealed_uris import UriSeal
from warren_machines.metadata.commands import DeclareExchange, PutParameter, SetPolicy
from warren_machines.metadata.records import Parameter, Policy
from warren_wire.links.definition import ShovelEnd
from warren_wire.links.uris import AMQP10

SUM = 2.5
"""More than a sum grows when all is doubled, less than a product."""
POLICIES = [
    {"federation-upstream-set": "all"},
    {"federation-upstream": "0"},
    {"federation-upstream-pattern": "nothing has such a name"},
]


def federated(count: int, policy: dict[str, Any]) -> World:
    """Definitions with so many federated queues, exchanges and upstreams."""
    world = World()
    world.do(SetPolicy(Policy("/", "p", "^f", policy)))
    for at in range(count):
        world.do(PutParameter(Parameter("/", "federation-upstream", f"{at}", {"uri": "amqp://a"})))
        world.do(DeclareExchange("/", f"f{at}", "fanout"))
        world.declare(f"f{at}")
    return world


class Turns:
    """The node of a supervisor; collects what its loop is to do."""

    def __init__(self, world: World) -> None:
        self.later: list[Callable[[], None]] = []
        state = world.state
        host = SimpleNamespace(cluster_id="c", node_id="a", leader=lambda group: "a")
        host.is_leader = lambda group: True
        clock = SimpleNamespace(monotonic_ms=lambda: 0)
        loop = SimpleNamespace(
            clock=clock, call_later=lambda delay_ms, call: self.later.append(call)
        )
        effects = SimpleNamespace(led=dict.fromkeys(state.groups))
        self.cluster: Any = SimpleNamespace(loop=loop, host=host, effects=effects)
        self.definitions: Any = SimpleNamespace(
            ready=True,
            state=state,
            within_reach=list,
            policy=lambda queue: state.scopes["/"].policies.of_queue(queue.name, "classic"),
        )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", [FederationLinks, ExchangeLinks])
def test_links_are_found_in_turns(kind: Any, policy: dict[str, Any]) -> None:
    """Before: all upstreams were gone through for each object, in one turn, twice a second."""

    def looking(count: int) -> Callable[[], object]:
        turns = Turns(federated(count, policy))
        seal = UriSeal(lambda: bytes(64))
        links = kind(turns.cluster, turns.definitions, "here", SimpleNamespace(), seal)
        found: dict[Any, Any] = {}
        links._compare = found.update
        links._own = {}
        links._look()
        while turns.later:
            turns.later.pop()()
        of_each = {"set": count, "upstream": 1, "pattern": 0}
        assert len(found) == count * of_each[next(iter(policy)).rpartition("-")[2]]
        return links._look

    assert growth(looking, 50) < SUM


def test_the_rights_of_a_link_look_at_one_exchange() -> None:
    """Before: at all of the vhost, for each routing key that a peer sends."""

    def asking(count: int) -> int:
        turns = Turns(federated(count, POLICIES[0]))
        rights = LinkLogins(turns.cluster, turns.definitions, ()).permissions(
            LinkLogin(BY_OPERATOR, "/", federated=True)
        )
        assert rights is not None and rights.allows("write", "f1")
        assert not rights.allows("write", "amq.fanout") and not rights.allows("read", "f1")
        return lines(lambda: rights.allows("write", "f2"))

    assert asking(5) == asking(50)


def acknowledged_one_by_one(count: int) -> Callable[[], object]:
    """Each acknowledgement of several went through all deliveries that are held."""
    end = ShovelEnd((), None, None, None, {}, False, AMQP10, "a")
    own: Any = SimpleNamespace()
    source: Any = Source10(end, own, own, "s", lambda why: None)
    source._give_credit = source.flush_later = lambda: None
    outcome = SimpleNamespace(update=lambda state: None, settle=lambda: None)
    source._held.update(dict.fromkeys(range(1, count + 1), outcome))
    return lambda: [source.acknowledge(tag, True) for tag in range(1, count + 1)]


def test_an_acknowledgement_does_not_look_at_all() -> None:
    assert growth(acknowledged_one_by_one, 100) < SUM
