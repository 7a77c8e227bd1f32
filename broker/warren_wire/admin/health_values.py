"""A resource alarm as `/management` shows it."""

from __future__ import annotations

import msgspec


class AlarmInfo(msgspec.Struct, frozen=True):
    """A resource on which a node is low: memory or disk."""

    node: str
    resource: str
