"""Encoding of blocks from a client's columns or lists."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence

from warren_wire.block.layout import (
    BLOCK_BYTES_MAX,
    FORM_AMQP091,
    MESSAGE_BYTES_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    TTL_NONE,
    Area,
    BlockError,
    Buffer,
    Route,
    encode_parts,
    runs_of,
    shifted,
    words_of,
)


def encode(
    bodies: Sequence[Buffer],
    properties: Sequence[Buffer],
    routes: Route | Sequence[Route],
    priorities: int | Sequence[int] = PRIORITY_DEFAULT,
    ttls_ms: Sequence[int | None] | None = None,
    form: int = FORM_AMQP091,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
) -> bytes:
    """Encode messages as a block, sorted by priority (stable).

    routes      one pair for all, or one per message
    priorities  one for all, or one per message; 0 to PRIORITY_MAX
    ttls_ms     per message, None for no limit
    """
    count = len(bodies)
    if len(properties) != count:
        raise BlockError(f"{count} bodies, but {len(properties)} properties")
    per_route: Sequence[Route] | None = None
    if not (isinstance(routes, tuple) and len(routes) == 2 and isinstance(routes[0], bytes)):
        per_route = routes
    if not isinstance(priorities, int):
        order = sorted(range(count), key=priorities.__getitem__, reverse=True)
        if order != list(range(count)):
            bodies = [bodies[i] for i in order]
            properties = [properties[i] for i in order]
            priorities = [priorities[i] for i in order]
            per_route = None if per_route is None else [per_route[i] for i in order]
            ttls_ms = None if ttls_ms is None else [ttls_ms[i] for i in order]
    known: dict[Route, int] = {}
    route_column: bytes | None = None
    if per_route is None:
        known[routes] = 0  # type: ignore[index]
    else:
        ids = [known.setdefault(route, len(known)) for route in per_route]
        route_column = struct.pack(f"<{count}I", *ids)
    ttl_column = None
    if ttls_ms is not None:
        ttl_column = struct.pack(f"<{count}I", *(TTL_NONE if t is None else t for t in ttls_ms))
    return encode_columns(
        count=count,
        properties_offsets=_offsets_of(properties),
        properties_data=b"".join(properties),
        body_offsets=_offsets_of(bodies),
        body_data=b"".join(bodies),
        routes=tuple(known),
        route_column=route_column,
        ttl_column=ttl_column,
        priorities=priorities if isinstance(priorities, int) else bytes(priorities),
        form=form,
        message_bytes_max=message_bytes_max,
    )


def encode_columns(
    *,
    count: int,
    properties_offsets: Buffer,
    properties_data: Buffer,
    body_offsets: Buffer,
    body_data: Buffer,
    routes: Sequence[Route],
    route_column: Buffer | None = None,
    ttl_column: Buffer | None = None,
    priorities: int | Buffer = PRIORITY_DEFAULT,
    form: int = FORM_AMQP091,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    bytes_max: int = BLOCK_BYTES_MAX,
) -> bytes:
    """Encode a block from columns in Arrow's layout, without Python work per message.

    *_offsets     count + 1 32-bit integers into *_data; need not start at 0 (a slice of an array)
    route_column  count 32-bit integers into routes; not needed for one route
    ttl_column    count 32-bit integers, TTL_NONE for no limit
    priorities    one for all, or count bytes; if they do not descend, the order is kept and the
                  block gets a priority column. For a sorted block, sort the columns before
    """
    properties = _rebased(properties_offsets, properties_data, count, "properties")
    bodies = _rebased(body_offsets, body_data, count, "body")
    size = len(properties[1]) + len(bodies[1])
    if size > bytes_max:
        raise BlockError(f"{size} bytes of messages; a block holds {bytes_max}: put in fewer")
    _check_message_bytes(bodies[0], message_bytes_max)
    if count and not routes:
        raise BlockError(f"{count} messages without a route")
    for column, name in ((route_column, "route"), (ttl_column, "ttl")):
        size = 4 * count if column is None else memoryview(column).nbytes
        if size != 4 * count:
            raise BlockError(f"{name} column of {size} bytes for {count} messages")
    if len(routes) > 1:
        if route_column is None or max(words_of(route_column), default=0) >= len(routes):
            raise BlockError(f"{len(routes)} routes need a column that says which, per message")
    if isinstance(priorities, int):
        priorities = bytes((priorities,)) * count if priorities <= PRIORITY_MAX else b"\xff" * count
    priorities = bytes(priorities)
    if len(priorities) != count or max(priorities, default=0) > PRIORITY_MAX:
        raise BlockError(f"priorities are {count} bytes from 0 to {PRIORITY_MAX}")
    return encode_parts(
        form=form,
        count=count,
        properties=properties,
        bodies=bodies,
        routes=routes,
        route_column=None if len(routes) < 2 else route_column,
        ttl_column=ttl_column,
        runs=runs_of(priorities),
    )


def _rebased(offsets: Buffer, data: Buffer, count: int, name: str) -> Area:
    words = words_of(offsets)
    if len(words) != count + 1:
        raise BlockError(f"{len(words)} {name} offsets for {count} messages; give {count + 1}")
    values = words.tolist()
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    if values != sorted(values) or values[-1] > len(view):
        raise BlockError(f"{name} offsets do not ascend within the {len(view)} bytes of data")
    return shifted(words, -values[0]), view[values[0] : values[-1]]


def _check_message_bytes(bodies: Buffer, limit: int) -> None:
    """Raise BlockError for a message above the limit; scan only when one could be."""
    words = words_of(bodies)
    if words[-1] <= limit:
        return
    largest = max(b - a for a, b in itertools.pairwise(words))
    if largest > limit:
        raise BlockError(f"a message of {largest} bytes; the limit is {limit}: split it")


def _offsets_of(items: Sequence[Buffer]) -> bytes:
    ends = list(itertools.accumulate(map(len, items), initial=0))
    if ends[-1] > 0xFFFFFFFF:
        raise BlockError(f"{ends[-1]} bytes in one block; make smaller blocks")
    return struct.pack(f"<{len(ends)}I", *ends)
