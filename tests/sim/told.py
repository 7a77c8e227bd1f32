"""A run of messages of which a test is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from warren_broker.cluster.client.relayed import Names
from warren_broker.cluster.client.routed_runs import PublishedRun, QueuePart

Confirmed: TypeAlias = Callable[[int, bool, "list[int] | None"], None]
"""(part, ok, table positions refused when only some are)."""


class Told(PublishedRun):
    """Calls a function with each answer."""

    confirms = True

    def __init__(self, told: Confirmed, names: Names | None = None, strict: bool = False) -> None:
        self._told, self.names, self.strict = told, names or {}, strict

    def confirmed(self, number: int, part: QueuePart, ok: bool, refused: list[int] | None) -> None:
        """See `PublishedRun`."""
        self._told(number, ok, refused)
