"""What the links of federated queues and of federated exchanges say of themselves alike."""

from __future__ import annotations

from typing import Any

import msgspec

from warren_broker.errors import Refusal
from warren_broker.federation.upstreams import CONSUMER_TAG
from warren_broker.management.shovel_values import TERMINATED, ShovelInfo
from warren_broker.metadata.records import Parameter
from warren_broker.shovel.definition import parse_shovel


def described_link(
    parameter: Parameter, transfer: dict[str, Any], info: ShovelInfo
) -> tuple[bool, ShovelInfo]:
    """Return whether the link's transfer is valid, and `info` with its URIs or the reason.

    transfer  what the link does, as the value of a shovel
    """
    try:
        made = parse_shovel(parameter.vhost, parameter.name, transfer)
    except Refusal as refusal:
        reason = " ".join(refusal.detail.split())
        return False, msgspec.structs.replace(info, state=TERMINATED, reason=reason)
    shown = ", ".join(map(str, made.source.uris))
    return True, msgspec.structs.replace(info, src_uri=shown)


def link_job(parameter: Parameter, transfer: dict[str, Any]) -> dict[str, Any]:
    """Return the job of the link's process: its transfer, and what its upstream says of it."""
    upstream = parameter.value["upstream"]
    return {
        "vhost": parameter.vhost,
        "name": parameter.name,
        "value": transfer,
        "link": {
            "trust_user_id": upstream.get("trust-user-id", False),
            "consumer_tag": upstream.get("consumer-tag", f"{CONSUMER_TAG}-{parameter.name}"),
        },
    }
