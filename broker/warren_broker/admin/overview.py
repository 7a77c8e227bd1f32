"""Handlers of the requests for the cluster, its alarms and what its nodes count."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from warren_broker.admin.caller import Answer, Asker
from warren_machines.metadata.runtime_parameters import cluster_name
from warren_wire import VERSION, errors
from warren_wire.admin import overview as requests
from warren_wire.admin.overview import (
    AlarmInfo,
    ClusterTotals,
    DefinedTotals,
    NodeTotals,
    Overview,
    OverviewNode,
)
from warren_wire.admin.requests import Listed

TOTALS_LISTED_MAX: Final = 5_000
"""Vhosts, once for each node, in one answer: Proton's values hold 65,535 parts, each has 10."""


def _overview(asker: Asker, request: requests.GetOverviewRequest, answer: Answer) -> None:
    settings, host = asker.broker.settings, asker.broker.cluster.host
    known = asker.state.nodes
    nodes = tuple(
        OverviewNode(
            name,
            known[name].address,
            name == settings.node or (host.connected(name) and not host.suspected(name)),
        )
        for name in sorted(known)
    )
    own = settings.cluster
    shown = cluster_name(asker.state, own)
    answer(Overview(settings.node, own, VERSION, nodes, cluster_name=shown or own))


def _list_alarms(asker: Asker, request: requests.ListAlarmsRequest, answer: Answer) -> None:
    short = asker.broker.resource_alarms.by_node()
    answer(
        Listed(tuple(AlarmInfo(node, one) for node in sorted(short) for one in sorted(short[node])))
    )


def _get(asker: Asker, request: requests.GetTotalsRequest, answer: Answer) -> None:
    """Answer the numbers of the vhosts that the user sees; each takes no time that its size shows.

    A node reads its queues in slices. A list of all queues would take every leader's answer for
    every single queue.
    """
    every = asker.access.has_tag("monitoring")
    vhosts = {
        name: DefinedTotals(len(scope.queues), len(scope.exchanges))
        for name, scope in asker.state.scopes.items()
        if asker.looks_into(name)
    }
    if not request.counts:
        answer(ClusterTotals(vhosts))
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
        answer(ClusterTotals(vhosts, tuple(shown)))

    asker.broker.connections.totals(asker.guard(told))


def _seen(node: NodeTotals, vhosts: dict[str, DefinedTotals]) -> NodeTotals:
    """Return what those without the tag `monitoring` see of a node."""
    led = {vhost: one for vhost, one in node.vhosts.items() if vhost in vhosts}
    return replace(node, counters={}, vhosts=led, connections=0, channels=0, about=None)
