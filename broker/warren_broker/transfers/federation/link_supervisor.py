"""What the links of federated queues and of federated exchanges have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import msgspec

from warren_broker.transfers.shovel.supervisor import ManagedShovel, Supervisor
from warren_machines.metadata.records import Parameter
from warren_machines.metadata.upstreams import CONSUMER_TAG, Upstream
from warren_wire.admin.shovels import FEDERATION, TERMINATED, ShovelInfo
from warren_wire.errors import Refusal
from warren_wire.links.definition import parse_shovel
from warren_wire.quoting import SHOWN_CHARACTERS_MAX, quoted


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
