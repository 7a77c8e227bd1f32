"""The links of federated queues that this node leads, and of federated exchanges that it runs.

A queue's link fetches while the queue has no ready message and a consumer of its own that can take
one. Only the leader knows both, so the link runs beside it, and moves with it.
"""

from __future__ import annotations

import base64
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from warren_broker.transfers.federation.exchange_rules import MAX_HOPS
from warren_broker.transfers.shovel.process import BINDINGS, FETCH, PAUSE, REMOVE
from warren_broker.transfers.shovel.shovels import shovel_owner
from warren_broker.transfers.shovel.supervisor import Key, ManagedShovel, Supervisor
from warren_machines.metadata.records import Parameter, QueueRecord
from warren_machines.metadata.upstreams import (
    CONSUMER_TAG,
    Upstream,
    exchange_transfer_of,
    federated_exchanges,
    transfer_of,
    upstreams_of,
)
from warren_machines.queue.state import QueueState
from warren_raft.runtime.host import UnknownGroup
from warren_wire.admin.shovels import FEDERATION, TERMINATED, ShovelInfo
from warren_wire.arguments import plain
from warren_wire.errors import Refusal
from warren_wire.links.definition import parse_shovel
from warren_wire.parameter_values import FEDERATION_UPSTREAM
from warren_wire.quoting import SHOWN_CHARACTERS_MAX, quoted

LINK: Final = "federation-link"
"""Component of the parameters that stand for links; they are in no definitions."""
DEMAND_MS: Final = 50
EXCHANGE_LINK: Final = "federation-exchange-link"
"""Component of the parameters that stand for links; they are in no definitions."""
BINDINGS_MS: Final = 100
CLEANUP_NEVER: Final = "never"
"""Value of `resource-cleanup-mode`: the queue upstream stays when a link is not wanted any more."""


def upstream_of(parameter: Parameter) -> Upstream:
    """Return the upstream of a link's parameter."""
    return Upstream(parameter.name, parameter.value["upstream"])


class LinkSupervisor(Supervisor):
    """Runs a process for each upstream of each federated object that is this node's.

    kind  of the object, which a link's parameter names so
    """

    federates = True
    kind: str

    @abstractmethod
    def transfer(self, parameter: Parameter) -> dict[str, Any]:
        """Return what the link does, as the value of a shovel."""

    @abstractmethod
    def ends(self, parameter: Parameter) -> dict[str, Any]:
        """Return the fields of ShovelInfo that say what the link is between."""

    def described(self, parameter: Parameter, node: str) -> tuple[bool, ShovelInfo]:
        """See Supervisor."""
        transfer = self.transfer(parameter)
        info = ShovelInfo(
            vhost=parameter.vhost,
            name=parameter.name,
            node=node,
            type=FEDERATION,
            src_queue=transfer["src-queue"],
            **self.ends(parameter),
        )
        try:
            made = parse_shovel(parameter.vhost, parameter.name, transfer)
        except Refusal as refusal:
            reason = " ".join(refusal.detail.split())
            return False, msgspec.structs.replace(info, state=TERMINATED, reason=reason)
        shown = ", ".join(map(str, made.source.uris))
        return True, msgspec.structs.replace(info, src_uri=shown)

    def job(self, parameter: Parameter) -> dict[str, Any]:
        """See Supervisor: the link's transfer, and what its upstream says of it."""
        upstream = parameter.value["upstream"]
        return {
            "vhost": parameter.vhost,
            "name": parameter.name,
            "value": self.transfer(parameter),
            "link": {
                "trust_user_id": upstream.get("trust-user-id", False),
                "consumer_tag": upstream.get("consumer-tag", f"{CONSUMER_TAG}-{parameter.name}"),
            },
        }

    def done(self, shovel: ManagedShovel) -> None:
        """See Supervisor. A link has no end, since its transfer has no `src-delete-after`."""
        raise AssertionError(f"{self.named(shovel.parameter)} has ended")

    def named(self, parameter: Parameter, limit: int = SHOWN_CHARACTERS_MAX) -> str:
        """See Supervisor."""
        return (
            f"federation link of {self.kind} {quoted(parameter.value[self.kind], limit)} in vhost "
            f"{quoted(parameter.vhost, limit)} to upstream {quoted(parameter.name, limit)}"
        )


def has_demand(state: QueueState) -> bool:
    """Return whether local consumers need messages that the queue does not have.

    A consumer counts when it can take a message now, and its priority is 0 or more: the links of
    other brokers consume with less. Else two queues, each upstream of the other, would pass
    messages to and fro. Neither basic.get nor a claim is a consumer that waits.
    """
    return not state.order.count and any(priority >= 0 for priority in state.service.lanes)


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


class ExchangeLinks(LinkSupervisor):
    """Runs a process for each upstream of each federated exchange that is this node's.

    An exchange has no leader, so a link runs on the node that `shovel_owner` names, as a shovel
    does.
    """

    watch_ms = BINDINGS_MS
    kind = "exchange"

    # ------------------------------------------------------------ which ones

    def wanted(self) -> dict[Key, Parameter]:
        """See Supervisor."""
        own, nodes = self._cluster.host.node_id, self.candidates()
        return {
            key: parameter for key, parameter in self._all() if shovel_owner(*key, nodes) == own
        }

    def _all(self) -> Iterator[tuple[Key, Parameter]]:
        """Yield the links of this cluster."""
        for vhost, scope in self._definitions.state.scopes.items():
            for exchange in federated_exchanges(scope):
                definition = scope.policies.of_exchange(exchange.name).definition
                for upstream in upstreams_of(scope.parameters, definition):
                    arguments = plain(exchange.arguments)
                    value = {
                        "exchange": exchange.name,
                        "kind": exchange.kind,
                        "durable": exchange.durable,
                        "arguments": {
                            name: arguments[name]
                            for name in sorted(arguments)
                            if isinstance(arguments[name], str | int | float)
                        },
                        "upstream": upstream.value,
                    }
                    key = (vhost, f"{exchange.name}\0{upstream.name}")
                    yield key, Parameter(vhost, EXCHANGE_LINK, upstream.name, value, upstream.user)

    # ------------------------------------------------------------ running one

    def transfer(self, parameter: Parameter) -> dict[str, Any]:
        """See LinkSupervisor."""
        vhost, exchange = parameter.vhost, parameter.value["exchange"]
        own_uri = f"amqp:///{quote(vhost, safe='')}"
        for_whom = f"{self._cluster_name}:{vhost}:{exchange}"
        return exchange_transfer_of(upstream_of(parameter), exchange, for_whom, own_uri)

    def ends(self, parameter: Parameter) -> dict[str, Any]:
        """See LinkSupervisor."""
        exchange = parameter.value["exchange"]
        return {
            "src_exchange": upstream_of(parameter).exchange(exchange),
            "dest_exchange": exchange,
        }

    def job(self, parameter: Parameter) -> dict[str, Any]:
        """See Supervisor."""
        given, exchange = parameter.value, parameter.value["exchange"]
        return {
            **super().job(parameter),
            "exchange": {
                "here": {
                    "cluster": self._cluster_name,
                    "vhost": parameter.vhost,
                    "exchange": exchange,
                },
                "exchange": upstream_of(parameter).exchange(exchange),
                "kind": given["kind"],
                "durable": given["durable"],
                "arguments": given["arguments"],
                "max_hops": given["upstream"].get("max-hops", MAX_HOPS),
            },
        }

    def leaving(self, key: Key, shovel: ManagedShovel) -> None:
        """See Supervisor: unless another node runs it now, its queue upstream goes, too."""
        kept = shovel.parameter.value["upstream"].get("resource-cleanup-mode") == CLEANUP_NEVER
        if not kept and shovel.process is not None and key not in dict(self._all()):
            shovel.process.tell_all(REMOVE)

    # ------------------------------------------------------------ bindings

    def watch(self) -> None:
        """Tell each process the bindings of its exchange, when they are others than before."""
        for shovel in self._here.values():
            if shovel.process is None:
                continue
            vhost, exchange = shovel.parameter.vhost, shovel.parameter.value["exchange"]
            scope = self._definitions.state.scopes.get(vhost)
            if scope is None:
                continue
            now = (id(scope), scope.source_versions.get(exchange, 0))
            if shovel.told == now:
                continue
            shovel.told = now
            bound = [
                (each.routing_key, plain(each.arguments))
                for each in scope.bindings.get(exchange, {}).values()
            ]
            packed = base64.b64encode(msgspec.msgpack.encode(bound))
            shovel.process.tell_all(BINDINGS + packed + b"\n")
