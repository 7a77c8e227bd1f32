"""The links of federated queues that this node leads.

A link fetches while the queue has no ready message and a consumer of its own that can take one.
Only the leader knows both, so the link runs beside it, and moves with it.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from warren_broker.transfers.federation.link_supervisor import LinkSupervisor, upstream_of
from warren_broker.transfers.shovel.process import FETCH, PAUSE
from warren_broker.transfers.shovel.supervisor import Key
from warren_machines.metadata.records import Parameter, QueueRecord
from warren_machines.metadata.upstreams import Upstream, transfer_of, upstreams_of
from warren_machines.queue.state import QueueState
from warren_raft.runtime.host import UnknownGroup
from warren_wire.parameter_values import FEDERATION_UPSTREAM

LINK: Final = "federation-link"
"""Component of the parameters that stand for links; they are in no definitions."""
DEMAND_MS: Final = 50


def has_demand(state: QueueState) -> bool:
    """Return whether local consumers need messages that the queue does not have.

    A consumer counts when it can take a message now, and its priority is 0 or more: the links of
    other brokers consume with less. Else two queues, each upstream of the other, would pass
    messages to and fro. Neither basic.get nor a claim is a consumer that waits.
    """
    return not state.order.count and any(priority >= 0 for priority in state.service)


class FederationLinks(LinkSupervisor):
    """Runs a process for each upstream of each federated queue that is led here."""

    watch_ms = DEMAND_MS
    kind = "queue"

    # ------------------------------------------------------------ which ones

    def wanted(self) -> dict[Key, Parameter]:
        """See Supervisor."""
        state, host = self._definitions.state, self._cluster.host
        federated = {
            vhost
            for vhost, scope in state.scopes.items()
            if any(component == FEDERATION_UPSTREAM for component, _ in scope.parameters)
        }
        found: dict[Key, Parameter] = {}
        if not federated:
            return found
        for group in sorted(self._cluster.effects.led):
            queue = state.groups.get(group)
            if queue is None or queue.vhost not in federated or not host.is_leader(group):
                continue
            for upstream in self._upstreams(queue):
                value = {"queue": queue.name, "group": group, "upstream": upstream.value}
                key = (queue.vhost, f"{queue.name}\0{upstream.name}")
                found[key] = Parameter(queue.vhost, LINK, upstream.name, value, upstream.user)
        return found

    def _upstreams(self, queue: QueueRecord) -> list[Upstream]:
        if queue.owner_uplink:  # exclusive: its only consumers are those of one connection
            return []
        policy = self._definitions.policy(queue).definition
        return upstreams_of(self._definitions.state.parameters(queue.vhost), policy)

    # ------------------------------------------------------------ running one

    def transfer(self, parameter: Parameter) -> dict[str, Any]:
        """See LinkSupervisor."""
        own_uri = f"amqp:///{quote(parameter.vhost, safe='')}"
        return transfer_of(upstream_of(parameter), parameter.value["queue"], own_uri)

    def ends(self, parameter: Parameter) -> dict[str, Any]:
        """See LinkSupervisor."""
        return {"dest_queue": parameter.value["queue"]}

    # ------------------------------------------------------------ demand

    def watch(self) -> None:
        """Tell each process when the demand of its queue has changed."""
        for link in self._here.values():
            if link.process is None:
                continue
            now = self._demand(link.parameter.value["group"])
            told = bool(link.told)  # a process begins without demand
            if told != now and link.process.tell(FETCH if now else PAUSE):
                link.told = now

    def _demand(self, group: int) -> bool:
        host = self._cluster.host
        try:
            return host.is_leader(group) and has_demand(host.state(group))
        except UnknownGroup:
            return False
