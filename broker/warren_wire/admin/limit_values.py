"""Limits as `/management` shows them; the keys are RabbitMQ's."""

from __future__ import annotations

import msgspec


class VhostLimits(msgspec.Struct, frozen=True):
    """The limits of a vhost by name: max-connections, max-queues; below 0: none."""

    vhost: str
    value: dict[str, int]


class UserLimits(msgspec.Struct, frozen=True):
    """The limits of a user by name: max-connections, max-channels; below 0: none."""

    user: str
    value: dict[str, int]
