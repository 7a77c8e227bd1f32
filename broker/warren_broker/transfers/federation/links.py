"""The links of federated queues that this node leads, and of federated exchanges that it runs.

A queue's link fetches while the queue has no ready message and a consumer of its own that can take
one. Only the leader knows both, so the link runs beside it, and moves with it.
"""

from __future__ import annotations

import base64
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec

from warren_broker.transfers.federation.exchange_rules import MAX_HOPS
from warren_broker.transfers.shovel.process import BINDINGS, FETCH, PAUSE, REMOVE
from warren_broker.transfers.shovel.shovels import shovel_owner
from warren_broker.transfers.shovel.supervisor import Key, ManagedShovel, Supervisor, Wanted
from warren_machines.metadata.records import Exchange, Parameter
from warren_machines.metadata.state import Scope
from warren_machines.metadata.upstreams import (
    CONSUMER_TAG,
    Upstream,
    exchange_transfer_of,
    federated_exchange,
    has_upstreams,
    transfer_of,
    upstreams_of,
)
from warren_machines.queue.state import QueueState
from warren_raft.runtime.host import UnknownGroup
from warren_wire.admin.shovels import FEDERATION, TERMINATED, ShovelInfo
from warren_wire.arguments import plain
from warren_wire.errors import Refusal
from warren_wire.links.definition import parse_shovel
from warren_wire.policy_keys import FEDERATION_KEYS
from warren_wire.quoting import SHOWN_CHARACTERS_MAX, quoted

LINK: Final = "federation-link"
"""Component of the parameters that stand for links; they are in no definitions."""
DEMAND_MS: Final = 50
EXCHANGE_LINK: Final = "federation-exchange-link"
"""Component of the parameters that stand for links; they are in no definitions."""
BINDINGS_MS: Final = 100
Under: TypeAlias = dict[tuple[tuple[str, Any], ...], list[Upstream]]
"""Upstreams of a vhost, by what a policy says of federation."""
_POLICIES_KNOWN: Final = 16
_PARAMETERS_PER_STEP: Final = 16
FEDERATION_LINKS_MAX: Final = 10_000
"""Links of one kind of a node that are looked at; `supervisor.RUNNING_MAX` of them run."""
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
    wanted_max = FEDERATION_LINKS_MAX
    kind: str

    @abstractmethod
    def transfer(self, parameter: Parameter) -> dict[str, Any]:
        """Return what the link does, as the value of a shovel."""

    @abstractmethod
    def ends(self, parameter: Parameter) -> dict[str, Any]:
        """Return the fields of ShovelInfo that say what the link is between."""

    def upstreams(
        self, scope: Scope, policy: Mapping[str, Any], known: Under
    ) -> Iterator[Upstream | None]:
        """Yield the upstreams under a policy, and None for each step that it takes to find them.

        known  those under the policies before
        """
        asked = tuple((key, policy[key]) for key in FEDERATION_KEYS if key in policy)
        if asked not in known:
            if len(known) >= _POLICIES_KNOWN:
                known.clear()
            known[asked] = upstreams_of(scope.parameters, policy)
            yield from repeat(None, len(scope.parameters) // _PARAMETERS_PER_STEP)
        yield from known[asked]

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
        shown = ", ".join(uri.given for uri in made.source.uris)
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
    return not state.order.count and any(priority >= 0 for _, priority in state.service.lanes)


class FederationLinks(LinkSupervisor):
    """Runs a process for each upstream of each federated queue that is led here."""

    watch_ms = DEMAND_MS
    kind = "queue"

    # ------------------------------------------------------------ which ones

    def wanted(self) -> Iterator[Wanted]:
        """See Supervisor."""
        state, host = self._definitions.state, self._cluster.host
        known: dict[str, Under] = {
            vhost: {} for vhost, scope in state.scopes.items() if has_upstreams(scope)
        }
        for group in sorted(self._cluster.effects.led) if known else ():
            yield None
            queue = state.groups.get(group)
            if queue is None or queue.vhost not in known or not host.is_leader(group):
                continue
            if queue.owner_uplink:  # exclusive: its only consumers are those of one connection
                continue
            scope, policy = state.scopes[queue.vhost], self._definitions.policy(queue).definition
            for upstream in self.upstreams(scope, policy, known[queue.vhost]):
                if upstream is None:
                    yield None
                    continue
                value = {"queue": queue.name, "group": group, "upstream": upstream.value}
                key = (queue.vhost, f"{queue.name}\0{upstream.name}")
                yield key, Parameter(queue.vhost, LINK, upstream.name, value, upstream.user)

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

    def wanted(self) -> Iterator[Wanted]:
        """See Supervisor."""
        own, nodes = self._cluster.host.node_id, self.candidates()
        for vhost, scope in list(self._definitions.state.scopes.items()):
            known: Under = {}
            for name in list(scope.exchanges) if has_upstreams(scope) else ():
                yield None
                found = federated_exchange(scope, name)
                if found is None:
                    continue
                for upstream in self.upstreams(scope, found[1], known):
                    key = (vhost, f"{name}\0{upstream.name if upstream else ''}")
                    if upstream is None or shovel_owner(*key, nodes) != own:
                        yield None
                    else:
                        yield key, _exchange_link(vhost, found[0], upstream)

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
        if not kept and shovel.process is not None and not self._has(*key):
            shovel.process.tell_all(REMOVE)

    def _has(self, vhost: str, name: str) -> bool:
        """Return whether the cluster has a link."""
        exchange, _, upstream = name.partition("\0")
        scope = self._definitions.state.scopes.get(vhost)
        found = federated_exchange(scope, exchange) if scope is not None else None
        if scope is None or found is None:
            return False
        return any(one.name == upstream for one in upstreams_of(scope.parameters, found[1]))

    # ------------------------------------------------------------ bindings

    def watch(self) -> None:
        """Tell each process the bindings of its exchange, when they are others than before."""
        lines: dict[tuple[str, str], bytes] = {}
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
            line = lines.get((vhost, exchange))
            if line is None:
                line = lines[vhost, exchange] = _bindings_line(scope, exchange)
            shovel.process.tell_all(line)


def _exchange_link(vhost: str, exchange: Exchange, upstream: Upstream) -> Parameter:
    """Return the parameter that stands for the link of an exchange."""
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
    return Parameter(vhost, EXCHANGE_LINK, upstream.name, value, upstream.user)


def _bindings_line(scope: Scope, exchange: str) -> bytes:
    """Return the line that tells a process the bindings of its exchange."""
    bound = [
        (each.routing_key, plain(each.arguments))
        for each in scope.bindings.get(exchange, {}).values()
    ]
    return BINDINGS + base64.b64encode(msgspec.msgpack.encode(bound)) + b"\n"
