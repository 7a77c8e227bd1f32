"""The handler of the request in `management.totals`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from warren_broker.admin import totals as m
from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.resource import Shown
from warren_wire import errors
from warren_wire.admin.total_values import ClusterTotals, DefinedTotals, NodeTotals

TOTALS_LISTED_MAX: Final = 5_000
"""Vhosts, once for each node, in one answer: Proton's values hold 65,535 parts, each has 10."""


def _get(asker: Asker, request: m.GetTotalsRequest, answer: Answer) -> None:
    """Answer the numbers of the vhosts that the user sees; each takes no time that its size shows.

    A node reads its queues in slices. A list of all queues would take every leader's answer for
    every single queue.
    """
    asker.access.must_be("management", "see totals")
    scopes = asker.broker.definitions.state.scopes
    every = asker.access.has_tag("monitoring")
    vhosts = {
        name: DefinedTotals(len(scope.queues), len(scope.exchanges))
        for name, scope in scopes.items()
        if every or asker.access.held_in(name) is not None
    }
    if not request.counts:
        answer(Shown(ClusterTotals(vhosts)))
        return

    def told(nodes: list[NodeTotals]) -> None:
        if asker.in_parts and len(vhosts) * (1 + len(nodes)) > TOTALS_LISTED_MAX:
            answer(
                errors.InvalidArgument(
                    f"totals of {len(vhosts)} vhosts on {len(nodes)} nodes are too many for one "
                    "answer; ask for /totals?counts=false"
                )
            )
            return
        shown = nodes if every else [_seen(one, vhosts) for one in nodes]
        answer(Shown(ClusterTotals(vhosts, tuple(shown))))

    asker.broker.connections.totals(asker.guard(told))


def _seen(node: NodeTotals, vhosts: dict[str, DefinedTotals]) -> NodeTotals:
    """Return what those without the tag `monitoring` see of a node."""
    led = {vhost: one for vhost, one in node.vhosts.items() if vhost in vhosts}
    return replace(node, counters={}, vhosts=led, connections=0, channels=0)


TOTAL_HANDLERS: dict[type, Callable[[Asker, Any, Answer], None]] = {m.GetTotalsRequest: _get}
