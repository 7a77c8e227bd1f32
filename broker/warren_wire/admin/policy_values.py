"""A policy as `/management` shows it; the keys are RabbitMQ's."""

from __future__ import annotations

from typing import Any

import msgspec


class PolicyInfo(msgspec.Struct, frozen=True, rename={"apply_to": "apply-to"}):
    """A policy, or an operator policy, of a vhost.

    pattern   found in the names of the objects that it applies to
    apply_to  queues, classic_queues, quorum_queues, exchanges or all
    """

    vhost: str
    name: str
    pattern: str
    apply_to: str
    definition: dict[str, Any]
    priority: int
