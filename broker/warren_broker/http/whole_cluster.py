"""Facts of the cluster that several paths of the HTTP API show."""

from __future__ import annotations

from warren_broker.http.calls import HttpCall
from warren_wire.admin.overview import GetOverviewRequest, ListAlarmsRequest


async def nodes_alive(call: HttpCall) -> set[str]:
    """Return the names of the nodes that run, as this node sees them."""
    overview = await call.get(GetOverviewRequest())
    return {str(node["name"]) for node in overview["nodes"] if node["alive"]}


async def alarms_by_node(call: HttpCall) -> dict[str, set[str]]:
    """Return the resources of which nodes are low."""
    found: dict[str, set[str]] = {}
    for alarm in await call.get(ListAlarmsRequest()):
        found.setdefault(str(alarm["node"]), set()).add(str(alarm["resource"]))
    return found
