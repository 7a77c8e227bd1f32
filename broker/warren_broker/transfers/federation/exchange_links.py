"""The links of federated exchanges that this node runs.

An exchange has no leader, so a link runs on the node that `shovel_owner` names, as a shovel does.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from warren_broker.transfers.federation.exchange_rules import MAX_HOPS
from warren_broker.transfers.federation.link_supervisor import LinkSupervisor, upstream_of
from warren_broker.transfers.shovel.process import BINDINGS, REMOVE
from warren_broker.transfers.shovel.static import shovel_owner
from warren_broker.transfers.shovel.supervisor import Key, ManagedShovel
from warren_machines.metadata.records import Parameter
from warren_machines.metadata.upstreams import (
    exchange_transfer_of,
    federated_exchanges,
    upstreams_of,
)
from warren_wire.arguments import plain

EXCHANGE_LINK: Final = "federation-exchange-link"
"""Component of the parameters that stand for links; they are in no definitions."""
BINDINGS_MS: Final = 100
CLEANUP_NEVER: Final = "never"
"""Value of `resource-cleanup-mode`: the queue upstream stays when a link is not wanted any more."""


class ExchangeLinks(LinkSupervisor):
    """Runs a process for each upstream of each federated exchange that is this node's."""

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
