"""Offsets of queries that read one queue."""

from __future__ import annotations

import json

from pyspark_warren.claims.offset import ClaimInfo, Offset, Position


def only(offset: Offset) -> Position:
    """The position in the one queue."""
    (position,) = offset.queues.values()
    return position


def standing(
    reader: str,
    number: int = 0,
    claims: tuple[ClaimInfo, ...] = (),
    queue: str = "q",
    vhost: str = "/",
) -> Offset:
    """The offset of a query that reads one queue."""
    return Offset(vhost, reader, {queue: Position(queue, reader, number, claims)})


def text(offset: Offset) -> str:
    """The offset as it is in Spark's log."""
    return json.dumps(offset.to_dict())
