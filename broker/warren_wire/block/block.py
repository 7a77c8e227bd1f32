"""The block: an immutable run of messages of one queue, in columns.

It is the unit from socket to DataFrame; `block.layout` describes its bytes. Ranges of messages are
half-open here: first <= i < last.
"""

from __future__ import annotations

import itertools
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from warren_wire.block.block_encoding import encode, encode_columns
from warren_wire.block.compression import compress, plain
from warren_wire.block.layout import (
    AREA_BODIES,
    AREA_PROPERTIES,
    AREAS,
    BLOCK_BYTES_MAX,
    BLOCK_MESSAGES_MAX,
    CODEC_LZ4_AREAS,
    CODEC_NONE,
    COLUMN_PRIORITY,
    COLUMN_ROUTE,
    COLUMN_TTL,
    FORM_AMQP091,
    FORM_AMQP10,
    HEADER,
    HEADER_BYTES,
    LARGEST_BODY_BYTES,
    MAGIC,
    MESSAGE_BYTES_MAX,
    PRIORITY_DEFAULT,
    PRIORITY_MAX,
    RUN,
    TTL_NONE,
    VERSION,
    Area,
    BlockError,
    Buffer,
    Route,
    Runs,
    areas_start,
    encode_parts,
    runs_of,
    shifted,
)
from warren_wire.checksum import crc32

BLOCK_OVERHEAD_BYTES = 1_600
"""Overhead of a block beside its bytes: its object, views, routes, and its place in a cache. A
message of 100 bytes that was published alone takes sixteen times of that."""

__all__ = [
    "AREAS",
    "AREA_BODIES",
    "AREA_PROPERTIES",
    "BLOCK_BYTES_MAX",
    "LARGEST_BODY_BYTES",
    "BLOCK_MESSAGES_MAX",
    "BLOCK_OVERHEAD_BYTES",
    "Block",
    "BlockError",
    "FORM_AMQP091",
    "FORM_AMQP10",
    "MESSAGE_BYTES_MAX",
    "PRIORITY_DEFAULT",
    "PRIORITY_MAX",
    "Route",
    "TTL_NONE",
    "compress",
    "concat",
    "decompress",
    "encode",
    "encode_columns",
]

if sys.byteorder != "little":
    raise ImportError("blocks are read in place: little-endian machines only")


class Block:
    """A decoded block; its areas and columns are views of the given buffer.

    count                number of messages
    form                 FORM_AMQP091 or FORM_AMQP10: what the properties area holds
    buffer               the whole block, uncompressed
    routes               distinct (exchange, routing key) pairs
    properties_offsets   u32 view, count + 1 entries, into properties_data
    body_offsets         u32 view, count + 1 entries, into body_data
    route_column         u32 view or None: all messages have route 0
    ttl_column           u32 view or None: nothing expires
    priority_column      u8 view or None: priority_runs are stored and descend
    """

    __slots__ = (
        "_runs",
        "body_data",
        "body_offsets",
        "buffer",
        "count",
        "form",
        "priority_column",
        "properties_data",
        "properties_offsets",
        "route_column",
        "routes",
        "routes_start",
        "ttl_column",
    )

    buffer: memoryview
    count: int
    form: int
    routes: tuple[Route, ...]
    properties_offsets: memoryview
    body_offsets: memoryview
    route_column: memoryview | None
    ttl_column: memoryview | None
    priority_column: memoryview | None
    properties_data: memoryview
    body_data: memoryview
    routes_start: int
    _runs: tuple[tuple[int, int, int], ...] | None

    def __init__(self) -> None:
        raise TypeError("use Block.decode")

    @classmethod
    def decode(
        cls,
        buffer: Buffer,
        verify: bool = True,
        bytes_max: int = BLOCK_BYTES_MAX,
        messages_max: int | None = None,
        columns: bool = True,
    ) -> Block:
        """Decode a block, compressed or not; raises BlockError when it is malformed.

        verify     check the checksum and every offset; without it only that the header's areas lie
                   inside the buffer: for bytes that this process or its log has verified
        bytes_max  largest length accepted, uncompressed
        messages_max  maximum of messages, and of routes; checked before memory is allocated for
                      them
        columns    False: of what `verify` checks only the checksum; for callers that check the rest
                   with the kernel (`kernel.check_structure`)
        """
        view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
        if len(view) < HEADER_BYTES:
            raise BlockError(f"{len(view)} bytes are no block: a header has {HEADER_BYTES}")
        head = HEADER.unpack_from(view)
        magic, version, form, which, codec, count, crc, length, routes, runs, _ = head
        if magic != MAGIC or version != VERSION:
            raise BlockError(f"not a block of version {VERSION}: starts with {bytes(view[:5])!r}")
        if form > FORM_AMQP10 or which > 7 or codec > CODEC_LZ4_AREAS:
            raise BlockError(f"block of unknown form {form}, columns {which} or codec {codec}")
        if messages_max is not None and max(count, routes) > messages_max:
            raise BlockError(
                f"{count} messages, {routes} routes; a block holds {messages_max}: send several"
            )
        if runs > PRIORITY_MAX + 1:
            raise BlockError(f"{runs} priority runs; there are {PRIORITY_MAX + 1} priorities")
        if not HEADER_BYTES <= length <= bytes_max:
            raise BlockError(f"block of {length} bytes; the limit is {bytes_max}: send less")
        if verify and crc32(view[HEADER_BYTES:]) != crc:
            raise BlockError(f"block of {length} bytes: damaged, its checksum does not match")
        if codec != CODEC_NONE:
            view = plain(view, head)
        elif length != len(view):
            raise BlockError(f"block of {length} bytes came as {len(view)}")
        block = cls.__new__(cls)
        block._parse(view, head)
        if verify and columns:
            _verify_columns(block)
        return block

    @classmethod
    def outline(cls, buffer: Buffer) -> Block:
        """Decode counts, offsets, columns and runs of a block that was verified before.

        The areas are not decompressed: the outline of a compressed block has no bodies or
        properties, as `whole` tells.
        """
        view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
        if len(view) < HEADER_BYTES or view[7] != CODEC_LZ4_AREAS:
            return cls.decode(buffer, verify=False)
        head = HEADER.unpack_from(view)
        if head[:2] != (MAGIC, VERSION):
            raise BlockError(f"not a block of version {VERSION}: starts with {bytes(view[:5])!r}")
        start = areas_start(head)
        if not start <= min(len(view), head[7]) or head[7] > BLOCK_BYTES_MAX:
            raise BlockError(f"block of {head[7]} bytes came as {len(view)}")
        block = cls.__new__(cls)
        block._parse(view[:start], head)
        return block

    @property
    def whole(self) -> bool:
        """Whether bodies and properties are present; not in the outline of a compressed block."""
        sizes = len(self.properties_data), len(self.body_data)
        return sizes == (self.properties_offsets[self.count], self.body_offsets[self.count])

    def _parse(self, view: memoryview, head: tuple[int, ...]) -> None:
        _, _, form, columns, _, count, _, length, routes, runs, routes_bytes = head
        if columns & COLUMN_PRIORITY and runs:
            raise BlockError("block with both priority runs and a priority column")
        if bool(columns & COLUMN_ROUTE) != (routes > 1) or (count and not routes):
            raise BlockError(f"block of {count} messages, {routes} routes, columns {columns}")
        at = HEADER_BYTES + runs * RUN.size
        wide = 2 * (count + 1) + count * (columns & 1) + count * (columns >> 1 & 1)
        narrow = (count + 3 & ~3) * (columns >> 2 & 1)
        start = at + 4 * wide + narrow
        properties_start = areas_start(head)
        if properties_start > length:
            raise BlockError(f"block of {length} bytes is too short for {count} messages")
        words = view[at : at + 4 * wide].cast("I")
        self.buffer = view
        self.count = count
        self.form = form
        self.properties_offsets = words[: count + 1]
        self.body_offsets = words[count + 1 : 2 * (count + 1)]
        at_ttl = 2 * (count + 1) + count * (columns & 1)
        self.route_column = words[2 * (count + 1) : at_ttl] if columns & COLUMN_ROUTE else None
        self.ttl_column = words[at_ttl:] if columns & COLUMN_TTL else None
        at_priority = at + 4 * wide
        self.priority_column = view[at_priority : at_priority + count] if narrow else None
        bodies = properties_start + self.properties_offsets[count]
        if bodies + self.body_offsets[count] != length:
            raise BlockError(
                f"block of {length} bytes: its areas end at {bodies + self.body_offsets[count]}"
            )
        self.properties_data = view[properties_start:bodies]
        self.body_data = view[bodies:]
        self.routes_start = start
        self.routes = _parse_routes(view[start : start + routes_bytes], routes)
        self._runs = None if columns & COLUMN_PRIORITY else _parse_runs(view, runs, count)

    def __len__(self) -> int:
        return self.count

    @property
    def priority_runs(self) -> tuple[tuple[int, int, int], ...]:
        """The maximal runs (first, last, priority) in order; descending where a block is sorted."""
        if self._runs is None:
            assert self.priority_column is not None
            self._runs = runs_of(self.priority_column)
        return self._runs

    def body(self, i: int) -> memoryview:
        """Return the body of message i."""
        return self.body_data[self.body_offsets[i] : self.body_offsets[i + 1]]

    def properties(self, i: int) -> memoryview:
        """Return the property flags and list (form 0) or the sections before the body (form 1)."""
        return self.properties_data[self.properties_offsets[i] : self.properties_offsets[i + 1]]

    def route(self, i: int) -> Route:
        """Return the exchange and routing key of message i."""
        return self.routes[0 if self.route_column is None else self.route_column[i]]

    def ttl_ms(self, i: int) -> int | None:
        """Return the time to live of message i; None for no limit."""
        ttl = TTL_NONE if self.ttl_column is None else self.ttl_column[i]
        return None if ttl == TTL_NONE else ttl

    def priority(self, i: int) -> int:
        """Return the priority of message i, 0 to PRIORITY_MAX."""
        if self.priority_column is not None:
            return self.priority_column[i]
        runs = self.priority_runs
        return runs[bisect_right(runs, i, key=lambda run: run[0]) - 1][2]

    def size_bytes(self, first: int = 0, last: int | None = None) -> int:
        """Return the bytes of bodies and properties of messages first <= i < last."""
        last = self.count if last is None else last
        bodies = self.body_offsets[last] - self.body_offsets[first]
        return bodies + self.properties_offsets[last] - self.properties_offsets[first]

    def kept_bytes(self, first: int, last: int) -> int:
        """Return the memory that messages first <= i < last keep while they wait for a client.

        A few of a large block keep all of it. The block itself takes some, too.
        """
        size, whole = self.size_bytes(first, last), len(self.buffer)
        return (size if 2 * size >= whole else whole) + BLOCK_OVERHEAD_BYTES

    def slice(self, first: int, last: int) -> bytes:
        """Return messages first <= i < last as a block of their own."""
        if first == 0 and last == self.count:
            return bytes(self.buffer)
        return concat([(self, first, last)])


def concat(
    parts: Iterable[tuple[Block, int, int]], bytes_max: int = BLOCK_BYTES_MAX, areas: int = AREAS
) -> bytes:
    """Concatenate the ranges (block, first, last) to one block; their order is kept.

    If priorities then do not descend, the block has a priority column. All blocks must have the
    same form: a caller with both makes two blocks. Raises BlockError also for what `Block.decode`
    does not check without `verify`.

    areas  AREA_PROPERTIES, AREA_BODIES: in an area that is left out every message is empty; to read
           such a block is all that may be done with it
    """
    chosen = [part for part in parts if part[1] != part[2]]
    for block, first, last in chosen:
        if not 0 <= first < last <= block.count:
            raise BlockError(f"messages {first} to {last} of a block of {block.count}")
        _check_offsets(block, first, last)
    forms = {block.form for block, _, _ in chosen}
    if len(forms) > 1:
        raise BlockError("blocks of AMQP 0.9.1 and 1.0 messages do not go into one")
    routes: dict[Route, int] = {}
    route_parts = [_mapped_routes(block, first, last, routes) for block, first, last in chosen]
    size = sum(block.size_bytes(first, last) for block, first, last in chosen)
    if size > bytes_max:
        raise BlockError(f"{size} bytes of messages; a block holds {bytes_max}: ask for fewer")
    properties = [(b.properties_offsets, b.properties_data, f, n) for b, f, n in chosen]
    bodies = [(b.body_offsets, b.body_data, f, n) for b, f, n in chosen]
    ttl: bytes | None = None
    if any(block.ttl_column is not None for block, _, _ in chosen):
        ttl = b"".join(
            b"\xff" * (4 * (n - f)) if b.ttl_column is None else b.ttl_column[f:n].tobytes()
            for b, f, n in chosen
        )
    return encode_parts(
        form=forms.pop() if forms else FORM_AMQP091,
        count=sum(last - first for _, first, last in chosen),
        properties=_joined(properties) if areas & AREA_PROPERTIES else _left_out(chosen),
        bodies=_joined(bodies) if areas & AREA_BODIES else _left_out(chosen),
        routes=tuple(routes),
        route_column=b"".join(route_parts) if len(routes) > 1 else None,
        ttl_column=ttl,
        runs=_joined_runs(chosen),
    )


def decompress(block: Buffer, bytes_max: int = BLOCK_BYTES_MAX) -> bytes:
    """Return the block without compression; raises BlockError when it is damaged."""
    return bytes(Block.decode(block, bytes_max=bytes_max).buffer)


def _parse_routes(view: memoryview, count: int) -> tuple[Route, ...]:
    data = bytes(view)
    routes = []
    at = 0
    if count * 2 > len(data):
        raise BlockError(f"{count} routes in {len(data)} bytes")
    for _ in range(count):
        try:
            split = at + 1 + data[at]
            end = split + 1 + data[split]
        except IndexError:
            raise BlockError(f"routes end after {len(data)} bytes, within one") from None
        routes.append((data[at + 1 : split], data[split + 1 : end]))
        at = end
    if at != len(data):
        raise BlockError(f"{count} routes take {at} bytes, not {len(data)}")
    return tuple(routes)


def _parse_runs(view: memoryview, runs: int, count: int) -> Runs:
    if runs == 1 and count:  # most often
        first, priority = RUN.unpack_from(view, HEADER_BYTES)
        if first == 0 and priority <= PRIORITY_MAX:
            return ((0, count, priority),)
    pairs = list(RUN.iter_unpack(view[HEADER_BYTES : HEADER_BYTES + runs * RUN.size]))
    if not pairs and not count:
        return ()
    firsts = [first for first, _ in pairs] + [count]
    rising = all(a < b for a, b in itertools.pairwise(firsts))
    falling = all(a[1] > b[1] for a, b in itertools.pairwise(pairs))
    if not pairs or firsts[0] != 0 or not rising or not falling or pairs[0][1] > PRIORITY_MAX:
        raise BlockError(f"priority runs {pairs[:8]} of {count} messages are out of order")
    return tuple((f, n, p) for (f, p), n in zip(pairs, firsts[1:], strict=True))


def _verify_columns(block: Block) -> None:
    for offsets, data, name in (
        (block.properties_offsets, block.properties_data, "properties"),
        (block.body_offsets, block.body_data, "body"),
    ):
        values = offsets.tolist()
        if values[0] != 0 or values != sorted(values):
            raise BlockError(f"{name} offsets of a block of {block.count} messages do not ascend")
        assert values[-1] == len(data), (values[-1], len(data))
    if block.route_column is not None and block.count:
        if max(block.route_column) >= len(block.routes):
            raise BlockError(f"route {max(block.route_column)} of {len(block.routes)}")
    if block.priority_column is not None and block.count:
        if max(block.priority_column) > PRIORITY_MAX:
            raise BlockError(f"priority {max(block.priority_column)}; the limit is {PRIORITY_MAX}")


def _check_offsets(block: Block, first: int, last: int) -> None:
    """Raise BlockError unless the offsets of these messages ascend, for a block not verified."""
    for offsets in (block.properties_offsets, block.body_offsets):
        values = offsets[first : last + 1].tolist()
        if values[-1] > offsets[block.count] or values != sorted(values):
            raise BlockError(f"offsets of messages {first} to {last} do not ascend")


def _joined_runs(parts: Sequence[tuple[Block, int, int]]) -> Runs:
    """Return the maximal priority runs of the concatenated parts."""
    joined: list[tuple[int, int, int]] = []
    at = 0
    for block, first, last in parts:
        for run_first, run_last, priority in block.priority_runs:
            size = min(run_last, last) - max(run_first, first)
            if size <= 0:
                continue
            if joined and joined[-1][2] == priority:
                joined[-1] = (joined[-1][0], at + size, priority)
            else:
                joined.append((at, at + size, priority))
            at += size
    return tuple(joined)


def _mapped_routes(block: Block, first: int, last: int, routes: dict[Route, int]) -> bytes:
    """Return the range's route column with the numbers of `routes`, which gets new routes added."""
    column = block.route_column
    if column is None:
        number = routes.setdefault(block.routes[0], len(routes))
        return struct.pack("<I", number) * (last - first)
    used = dict.fromkeys(column[first:last].tolist())  # in order of appearance
    if max(used) >= len(block.routes):
        raise BlockError(f"route {max(used)} of {len(block.routes)}")
    mapping = {old: routes.setdefault(block.routes[old], len(routes)) for old in used}
    if all(old == new for old, new in mapping.items()):
        return column[first:last].tobytes()
    return struct.pack(f"<{last - first}I", *map(mapping.__getitem__, column[first:last]))


def _left_out(parts: Sequence[tuple[Block, int, int]]) -> Area:
    """Return an area in which every message is empty."""
    return bytes(4 * (1 + sum(last - first for _, first, last in parts))), b""


def _joined(parts: Sequence[tuple[memoryview, memoryview, int, int]]) -> Area:
    """Concatenate parts (offsets, data, first, last)."""
    offsets = [b"\x00\x00\x00\x00"]
    data = []
    at = 0
    for column, area, first, last in parts:
        start, end = column[first], column[last]
        offsets.append(shifted(column[first + 1 : last + 1], at - start))
        data.append(area[start:end])
        at += end - start
    return b"".join(offsets), b"".join(data)
