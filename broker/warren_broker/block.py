"""The block: an immutable run of messages of one queue in columns, the unit from socket to DataFrame.

Little-endian. `docs/architecture.md` ("The block") has the layout:

    0   "WBLK", u8 version 1, u8 form, u8 columns, u8 codec
    8   u32 count, u32 crc32 of everything from byte 32 as stored, u32 length uncompressed,
        u32 routes, u32 priority runs, u32 bytes of the routes
    32  priority runs: (u32 first, u8 priority, 3 zero) each      none with a priority column
        u32 properties_offsets[count + 1], u32 body_offsets[count + 1]
        u32 route[count]    columns bit 0
        u32 ttl_ms[count]   columns bit 1
        u8 priority[count], padded to 4   columns bit 2
        routes: (u8 length, exchange, u8 length, routing key) each
        zeros up to a multiple of 8, properties area, body area

Ranges of messages are half-open everywhere here: first <= i < last.
"""

from __future__ import annotations

import itertools
import re
import struct
import sys
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import lz4.frame

if sys.byteorder != "little":
    raise ImportError("warren_broker.block reads columns in place and needs a little-endian machine")

Buffer: TypeAlias = bytes | bytearray | memoryview
Route: TypeAlias = tuple[bytes, bytes]
"""(exchange, routing key), at most 255 bytes each."""

MAGIC = b"WBLK"
VERSION = 1
HEADER = struct.Struct("<4sBBBB6I")
HEADER_BYTES = 32
FORM_AMQP091 = 0
FORM_AMQP10 = 1
COLUMN_ROUTE = 1
COLUMN_TTL = 2
COLUMN_PRIORITY = 4
CODEC_NONE = 0
CODEC_LZ4 = 1

PRIORITY_DEFAULT = 4
PRIORITY_MAX = 31
TTL_NONE = 0xFFFFFFFF
MESSAGE_BYTES_MAX = 16 << 20
BLOCK_BYTES_MAX = 64 << 20
"""What `decode` accepts and `encode` makes unless told otherwise, uncompressed."""

_RUN = struct.Struct("<IB3x")
_SAME_BYTES = re.compile(rb"(.)\1*", re.DOTALL)
_COMPRESS_BYTES_MIN = 512


class BlockError(ValueError):
    """Bytes that are no block, or arguments that do not fit into one."""


class Block:
    """A decoded block; its areas and columns are views of the buffer that was given.

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
        "buffer", "count", "form", "routes", "properties_offsets", "body_offsets", "route_column",
        "ttl_column", "priority_column", "properties_data", "body_data", "routes_start", "_runs",
    )  # fmt: skip

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
        cls, buffer: Buffer, verify: bool = True, bytes_max: int = BLOCK_BYTES_MAX
    ) -> Block:
        """Read a block, decompressing it when it is compressed; BlockError when it is none.

        verify     check the checksum and every offset; without it only what keeps the header's
                   areas inside the buffer: for bytes that this process or its log vouches for
        bytes_max  largest length accepted, uncompressed
        """
        view = memoryview(buffer).cast("B") if len(buffer) else memoryview(b"")
        if len(view) < HEADER_BYTES:
            raise BlockError(f"{len(view)} bytes are no block: a header has {HEADER_BYTES}")
        head = HEADER.unpack_from(view)
        magic, version, form, columns, codec, _, crc, length, _, _, _ = head
        if magic != MAGIC or version != VERSION:
            raise BlockError(
                f"not a block of version {VERSION}: starts with {bytes(view[:5])!r}"
            )
        if form > FORM_AMQP10 or columns > 7 or codec > CODEC_LZ4:
            raise BlockError(f"block of unknown form {form}, columns {columns} or codec {codec}")
        if not HEADER_BYTES <= length <= bytes_max:
            raise BlockError(f"block of {length} bytes; the limit is {bytes_max}: send smaller blocks")
        if verify and zlib.crc32(view[HEADER_BYTES:]) != crc:
            raise BlockError(f"checksum of a block of {length} bytes does not match: it was damaged")
        if codec == CODEC_LZ4:
            view = _decompressed(view, head)
        elif length != len(view):
            raise BlockError(f"block of {length} bytes came as {len(view)}")
        block = cls.__new__(cls)
        block._parse(view, head)
        if verify:
            _verify_columns(block)
        return block

    def _parse(self, view: memoryview, head: tuple[int, ...]) -> None:
        _, _, form, columns, _, count, _, length, routes, runs, routes_bytes = head
        if columns & COLUMN_PRIORITY and runs:
            raise BlockError("block with both priority runs and a priority column")
        if bool(columns & COLUMN_ROUTE) != (routes > 1) or (count and not routes):
            raise BlockError(f"block of {count} messages, {routes} routes, columns {columns}")
        at = HEADER_BYTES + runs * _RUN.size
        wide = 2 * (count + 1) + count * (columns & 1) + count * (columns >> 1 & 1)
        narrow = (count + 3 & ~3) * (columns >> 2 & 1)
        start = at + 4 * wide + narrow
        properties_start = start + routes_bytes + 7 & ~7
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
        """(first, last, priority) of maximal runs, in order; they descend unless is_sorted is false."""
        if self._runs is None:
            assert self.priority_column is not None
            self._runs = _runs_of(self.priority_column)
        return self._runs

    @property
    def is_sorted(self) -> bool:
        """Whether priorities descend from the first message to the last."""
        return self.priority_column is None or _descending(self.priority_runs)

    def body(self, i: int) -> memoryview:
        """Body of message i."""
        return self.body_data[self.body_offsets[i] : self.body_offsets[i + 1]]

    def properties(self, i: int) -> memoryview:
        """Property flags and list (form 0) or the sections before the body (form 1)."""
        return self.properties_data[self.properties_offsets[i] : self.properties_offsets[i + 1]]

    def route(self, i: int) -> Route:
        """Exchange and routing key of message i."""
        return self.routes[0 if self.route_column is None else self.route_column[i]]

    def ttl_ms(self, i: int) -> int | None:
        """Its time to live; None for no limit."""
        ttl = TTL_NONE if self.ttl_column is None else self.ttl_column[i]
        return None if ttl == TTL_NONE else ttl

    def priority(self, i: int) -> int:
        """0 to PRIORITY_MAX."""
        if self.priority_column is not None:
            return self.priority_column[i]
        runs = self.priority_runs
        return runs[bisect_right(runs, i, key=lambda run: run[0]) - 1][2]

    def size_bytes(self, first: int = 0, last: int | None = None) -> int:
        """Bodies and properties of messages first <= i < last."""
        last = self.count if last is None else last
        bodies = self.body_offsets[last] - self.body_offsets[first]
        return bodies + self.properties_offsets[last] - self.properties_offsets[first]

    def slice(self, first: int, last: int) -> bytes:
        """Messages first <= i < last as a block of their own."""
        if first == 0 and last == self.count:
            return bytes(self.buffer)
        return concat([(self, first, last)])


def concat(parts: Iterable[tuple[Block, int, int]], bytes_max: int = BLOCK_BYTES_MAX) -> bytes:
    """The ranges (block, first, last) one after another as one block; their order is kept.

    Where priorities then do not descend, the block carries a priority column. All blocks have one
    form: a caller with both makes two blocks.
    """
    chosen = [part for part in parts if part[1] != part[2]]
    for block, first, last in chosen:
        if not 0 <= first < last <= block.count:
            raise BlockError(f"messages {first} to {last} of a block of {block.count}")
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
    return _encode(
        form=forms.pop() if forms else FORM_AMQP091,
        count=sum(last - first for _, first, last in chosen),
        properties=_joined(properties),
        bodies=_joined(bodies),
        routes=tuple(routes),
        route_column=b"".join(route_parts) if len(routes) > 1 else None,
        ttl_column=ttl,
        runs=_joined_runs(chosen),
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
    """A block of these messages, sorted by priority (stable).

    routes      one pair for all, or one per message
    priorities  one for all, or one per message; 0 to PRIORITY_MAX
    ttls_ms     per message, None for no limit
    """
    count = len(bodies)
    if len(properties) != count:
        raise BlockError(f"{count} bodies, but {len(properties)} properties")
    per_route: Sequence[Route] | None = None
    if not (isinstance(routes, tuple) and len(routes) == 2 and isinstance(routes[0], bytes)):
        per_route = routes  # type: ignore[assignment]
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
    """A block from columns as Arrow keeps them; no work per message but C loops.

    *_offsets     count + 1 32-bit integers into *_data; need not start at 0 (a slice of an array)
    route_column  count 32-bit integers into routes; not needed for one route
    ttl_column    count 32-bit integers, TTL_NONE for no limit
    priorities    one for all, or count bytes; when they do not descend the order stays as it is and
                  the block carries a priority column. To have it sorted, sort the columns before
    """
    properties = _rebased(properties_offsets, properties_data, count, "properties")
    bodies = _rebased(body_offsets, body_data, count, "body")
    size = len(properties[1]) + len(bodies[1])
    if size > bytes_max:
        raise BlockError(f"{size} bytes of messages; a block holds {bytes_max}: make smaller blocks")
    _check_message_bytes(properties[0], bodies[0], message_bytes_max)
    if count and not routes:
        raise BlockError(f"{count} messages without a route")
    for column, name in ((route_column, "route"), (ttl_column, "ttl")):
        if column is not None and memoryview(column).nbytes != 4 * count:
            raise BlockError(f"{name} column of {memoryview(column).nbytes} bytes for {count} messages")
    if len(routes) > 1:
        if route_column is None or max(_words(route_column), default=0) >= len(routes):
            raise BlockError(f"{len(routes)} routes need a column with a route from them per message")
    if isinstance(priorities, int):
        priorities = bytes((priorities,)) * count if priorities <= PRIORITY_MAX else b"\xff" * count
    priorities = bytes(priorities)
    if len(priorities) != count or max(priorities, default=0) > PRIORITY_MAX:
        raise BlockError(f"priorities are {count} bytes from 0 to {PRIORITY_MAX}")
    return _encode(
        form=form,
        count=count,
        properties=properties,
        bodies=bodies,
        routes=routes,
        route_column=None if len(routes) < 2 else route_column,
        ttl_column=ttl_column,
        runs=_runs_of(priorities),
    )


def compress(block: bytes) -> bytes:
    """The block with LZ4 when that saves an eighth; otherwise the same bytes."""
    if len(block) < _COMPRESS_BYTES_MIN or block[7] != CODEC_NONE:
        return block
    packed = lz4.frame.compress(memoryview(block)[HEADER_BYTES:], store_size=False)
    if len(packed) + HEADER_BYTES > len(block) - len(block) // 8:
        return block
    head = list(HEADER.unpack_from(block))
    head[4] = CODEC_LZ4
    head[6] = zlib.crc32(packed)
    return HEADER.pack(*head) + packed


def decompress(block: Buffer, bytes_max: int = BLOCK_BYTES_MAX) -> bytes:
    """The block without compression; BlockError when it is damaged."""
    return bytes(Block.decode(block, bytes_max=bytes_max).buffer)


def encode_head(
    *, form: int, columns: int, count: int, crc: int, length: int, routes: int, runs: int,
    routes_bytes: int,
) -> bytes:  # fmt: skip
    """The 32 bytes that every block starts with."""
    return HEADER.pack(
        MAGIC, VERSION, form, columns, CODEC_NONE, count, crc, length, routes, runs, routes_bytes
    )


def encode_routes(routes: Iterable[Route]) -> bytes:
    """The routes as they stand in a block, without padding."""
    parts = []
    for exchange, key in routes:
        if len(exchange) > 255 or len(key) > 255:
            raise BlockError(
                f"exchange of {len(exchange)} or routing key of {len(key)} bytes; the limit is 255"
            )
        parts.append(b"%c%b%c%b" % (len(exchange), exchange, len(key), key))
    return b"".join(parts)


# ------------------------------------------------------------------ inside


_Runs: TypeAlias = tuple[tuple[int, int, int], ...]
_Area: TypeAlias = tuple[bytes, Buffer]
"""Offsets that start at 0, and the data."""


def _encode(
    *, form: int, count: int, properties: _Area, bodies: _Area, routes: Sequence[Route],
    route_column: Buffer | None, ttl_column: Buffer | None, runs: _Runs,
) -> bytes:  # fmt: skip
    columns = 0
    parts: list[Buffer] = [b"", b"", properties[0], bodies[0]]
    stored = 0
    if _descending(runs):
        parts[1] = b"".join([_RUN.pack(first, priority) for first, _, priority in runs])
        stored = len(runs)
    if route_column is not None:
        columns |= COLUMN_ROUTE
        parts.append(route_column)
    if ttl_column is not None:
        columns |= COLUMN_TTL
        parts.append(ttl_column)
    if stored != len(runs):
        columns |= COLUMN_PRIORITY
        parts.append(b"".join([bytes((p,)) * (last - first) for first, last, p in runs]))
        parts.append(bytes(-count % 4))
    routes_data = encode_routes(routes)
    parts.append(routes_data)
    length = HEADER_BYTES + sum(memoryview(part).nbytes for part in parts)
    parts.append(bytes(-length % 8))
    parts += (properties[1], bodies[1])
    length += -length % 8 + len(properties[1]) + len(bodies[1])
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    parts[0] = encode_head(
        form=form, columns=columns, count=count, crc=crc, length=length, routes=len(routes),
        runs=stored, routes_bytes=len(routes_data),
    )  # fmt: skip
    return b"".join(parts)


def _decompressed(view: memoryview, head: tuple[int, ...]) -> memoryview:
    length = head[7]
    reader = lz4.frame.LZ4FrameDecompressor()
    try:
        # One byte more than it may be: a frame that holds more than it says is refused unread.
        data = reader.decompress(view[HEADER_BYTES:], max_length=length - HEADER_BYTES + 1)
    except (RuntimeError, EOFError) as error:
        raise BlockError(f"compressed block of {length} bytes cannot be read: {error}") from error
    if len(data) != length - HEADER_BYTES or not reader.eof:
        raise BlockError(f"compressed block of {length} bytes holds {len(data) + HEADER_BYTES}")
    if reader.unused_data:
        raise BlockError(f"{len(reader.unused_data)} bytes follow a compressed block")
    plain = list(head)
    plain[4] = CODEC_NONE
    plain[6] = zlib.crc32(data)
    return memoryview(HEADER.pack(*plain) + data)


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


def _parse_runs(view: memoryview, runs: int, count: int) -> _Runs:
    pairs = list(_RUN.iter_unpack(view[HEADER_BYTES : HEADER_BYTES + runs * _RUN.size]))
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


def _runs_of(priorities: Buffer) -> _Runs:
    return tuple(
        (found.start(), found.end(), found[0][0]) for found in _SAME_BYTES.finditer(priorities)
    )


def _descending(runs: _Runs) -> bool:
    return all(a[2] > b[2] for a, b in itertools.pairwise(runs))


def _joined_runs(parts: Sequence[tuple[Block, int, int]]) -> _Runs:
    """Maximal priority runs of the parts one after another."""
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
    """The route column of that range with the numbers that `routes` gives; it learns new ones."""
    column = block.route_column
    if column is None:
        number = routes.setdefault(block.routes[0], len(routes))
        return struct.pack("<I", number) * (last - first)
    used = dict.fromkeys(column[first:last].tolist())  # in the order first seen
    mapping = {old: routes.setdefault(block.routes[old], len(routes)) for old in used}
    if all(old == new for old, new in mapping.items()):
        return column[first:last].tobytes()
    return struct.pack(f"<{last - first}I", *map(mapping.__getitem__, column[first:last]))


def _words(column: Buffer) -> memoryview:
    return memoryview(column).cast("B").cast("I")


def _shifted(words: memoryview, delta: int) -> bytes:
    """Every u32 of words plus delta; each sum stays within 0 to 2**32 - 1.

    One long addition: no sum carries into its neighbour, so all lanes are right.
    """
    if delta == 0 or not len(words):
        return words.tobytes()
    size = 4 * len(words)
    ones = int.from_bytes(b"\x01\x00\x00\x00" * len(words), "little")
    return (int.from_bytes(words, "little") + delta * ones).to_bytes(size, "little")


def _joined(parts: Sequence[tuple[memoryview, memoryview, int, int]]) -> _Area:
    """(offsets, data, first, last) one after another."""
    offsets = [b"\x00\x00\x00\x00"]
    data = []
    at = 0
    for column, area, first, last in parts:
        start, end = column[first], column[last]
        offsets.append(_shifted(column[first + 1 : last + 1], at - start))
        data.append(area[start:end])
        at += end - start
    return b"".join(offsets), b"".join(data)


def _rebased(offsets: Buffer, data: Buffer, count: int, name: str) -> _Area:
    words = _words(offsets)
    if len(words) != count + 1:
        raise BlockError(f"{len(words)} {name} offsets for {count} messages; give {count + 1}")
    values = words.tolist()
    view = memoryview(data).cast("B") if len(data) else memoryview(b"")
    if values != sorted(values) or values[-1] > len(view):
        raise BlockError(f"{name} offsets do not ascend within the {len(view)} bytes of data")
    return _shifted(words, -values[0]), view[values[0] : values[-1]]


def _check_message_bytes(properties: Buffer, bodies: Buffer, limit: int) -> None:
    """No message is above the limit; looked at one by one only when some could be."""
    words = _words(bodies)
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
