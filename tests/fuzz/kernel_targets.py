"""Targets of the compiled code: frames, properties, blocks, sections of AMQP 1.0."""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any

from tests.broker.fuzz import blocks
from tests.fuzz.target import FAST, SLOW, Target, outcome, same, with_twin
from tests.wire.kernel import frames as f
from warren_wire.amqp091 import fields, properties
from warren_wire.block.block import Block, BlockError, compress, concat, encode
from warren_wire.errors import Refusal
from warren_wire.kernel import Kernel, MessageTable, Route, Selection
from warren_wire.kernel.items import HAS_DEATHS, DeliveryMalformed, Unsendable
from warren_wire.kernel.section_types import MalformedSections

SEEDS = 40
FRAME_MAX, BODY_MAX = 4096, 8000


# ------------------------------------------------------------------ AMQP 0.9.1 frames


def _scanned(kernel: Kernel, pieces: list[bytes]) -> Any:
    scanner = kernel.scan.FrameScanner(FRAME_MAX, BODY_MAX)
    items = [item for piece in pieces for item in scanner.feed(piece)]
    assert scanner.pending_bytes <= FRAME_MAX + 8 + 4 * BODY_MAX, scanner.pending_bytes
    table = scanner.table
    rows = (table.count, table.rows, table.properties, table.bodies, table.routes.entries)
    return items, scanner.pending_bytes, rows


def scan(data: bytes) -> None:
    """Frames, cut in two at the place that the first octet says: in one piece, and by the twin."""
    if not data:
        return
    cut, data = data[0], data[1:]
    pieces = [data[:cut], data[cut:]]
    found = _scanned(FAST, pieces)
    same("rows of cut and whole input", found[2], _scanned(FAST, [data])[2])
    for raw in _properties_of(found[2]):
        _read_by_the_codec(raw)
    if with_twin(data):
        same("kernels", found, _scanned(SLOW, pieces))


@lru_cache(4096)
def _read_by_the_codec(raw: bytes) -> None:
    """Decode what the kernel accepts: every decoder can. Most inputs differ in other places."""
    properties.decode(raw)


def _properties_of(rows: Any) -> Iterator[bytes]:
    count, words, area = rows[0], array("I", bytes(rows[1])), bytes(rows[2])
    start = 0
    for i in range(count):
        end = words[5 * i + 1]
        yield area[start:end]
        start = end


def scan_seeds() -> Iterator[bytes]:
    """Frames of every kind, bodies in several frames."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        made = b"".join(
            chance.choice(
                (
                    f.publish(1, b"x", b"k", b"body" * chance.randrange(3), _raw(chance)),
                    f.publish(2, b"", b"q", b"b" * 2000, f.PLAIN, 0, 1000),
                    f.ack(1, chance.randrange(4), True),
                    f.nack(1, 2),
                    f.reject(1, 3),
                    f.frame(8, 0, b""),
                    f.method(1, 20, 40, b"abc"),
                    f.header(1, 5),
                    f.frame(3, 1, b"hello"),
                )
            )
            for _ in range(chance.randrange(1, 5))
        )
        yield bytes((chance.randrange(256),)) + made


def _delivered(kernel: Kernel, pieces: list[bytes]) -> Any:
    scanner = kernel.delivery_scan.DeliveryScanner(1, FRAME_MAX, BODY_MAX)
    rest = [outcome(partial(scanner.feed, piece), DeliveryMalformed) for piece in pieces]
    taken = scanner.take()
    columns = (taken.exchange, taken.routing_key, taken.properties, taken.body)
    areas = [(bytes(column.offsets), bytes(column.data)) for column in columns]
    return rest, taken.count, bytes(taken.tags), bytes(taken.redelivered), areas


def deliveries(data: bytes) -> None:
    """The frames that a client gets, cut at the place that the first octet says."""
    if not data:
        return
    pieces = [data[1:][: data[0]], data[1:][data[0] :]]
    found = _delivered(FAST, pieces)
    if with_twin(data):
        same("kernels", found, _delivered(SLOW, pieces))


def deliveries_seeds() -> Iterator[bytes]:
    """What the kernel writes for blocks."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        block = Block.decode(blocks.valid(chance))
        out = bytearray()
        try:
            FAST.deliver.format_deliveries(
                out, block, 0, block.count, 1 + seed // 30, "tag", 5, False, FRAME_MAX
            )
        except Unsendable:
            continue
        yield bytes((chance.randrange(256),)) + bytes(out)


# ------------------------------------------------------------------ properties


def _raw(chance: random.Random) -> bytes:
    return blocks.property_bytes(chance, chance.random() < 0.5)


def _columns(kernel: Kernel, data: bytes) -> Any:
    offsets = memoryview(array("I", (0, len(data))))
    columns, bad = kernel.property_columns.split_properties(offsets, data, 1, [True] * 14)
    return [(bytes(c.offsets), bytes(c.data)) for c in columns], bad


def _properties(kernel: Kernel, data: bytes) -> Any:
    deliver = kernel.deliver
    good = deliver.readable(data)
    bare, kept = deliver.split_sections(good)
    again, _ = deliver.split_sections(deliver.with_sections(bare, b"kept"))  # no empty table
    back = deliver.split_sections(deliver.with_sections(again, b"kept"))
    same("sections in a header", back, (again, b"kept"))
    headed = outcome(lambda: deliver.with_headers(data, {"x-delivery-count": 3}), Unsendable)
    fitted = outcome(lambda: deliver.fitting(0, good, FRAME_MAX), Unsendable)
    head = kernel.sections_out.write_sections(good, b"x", b"k", (4, -1, True, 1), {}, False)
    message = memoryview(head + b"\x00\x53\x75\xa0\x01b")
    # refused: CC has other entries than texts, which AMQP 0.9.1 skips and 1.0 does not accept
    back = outcome(lambda: kernel.sections_in.read_sections(message), MalformedSections)
    return good, bare, kept, headed, fitted, _columns(kernel, data), head, back


def property_lists(data: bytes) -> None:
    """Flags and list: by the kernel, by the codec, and back."""
    found = _properties(FAST, data)
    read = outcome(lambda: properties.decode(data), Refusal)
    accepted = found[0] == data
    if accepted:
        _deaths_apart(data)
        assert isinstance(read, properties.Properties), read
        properties.headers(data)
        same("spans", bytes(properties.replace(data)), data)
    else:
        properties.decode(found[0])
    if with_twin(data):
        same("kernels", found, _properties(SLOW, data))


def _deaths_apart(data: bytes) -> None:
    """Of a message that a client publishes: as the codec sorts its headers, in either kernel."""
    flags = FAST.deliver.examine(data) >> 40
    expected = data
    if flags & HAS_DEATHS:
        start, end = properties.spans(data)["headers"]
        found = fields.entries(data[start + 4 : end])
        found.sort(key=lambda entry: entry[0] == b"x-death")
        expected = data[: start + 4] + b"".join([entry for _, entry in found]) + data[end:]
    for kernel in (FAST, SLOW) if with_twin(data) else (FAST,):
        table = MessageTable()
        for _ in range(2):
            table.append(Route(b"", b"q", False), data, b"b", flags=flags)
        kernel.admit.set_deaths_apart(table, 1, 2)
        same("deaths apart", (table.properties_of(0), table.properties_of(1)), (data, expected))


def property_seeds() -> Iterator[bytes]:
    """Properties with what the broker itself reads."""
    for seed in range(2 * SEEDS):
        yield _raw(random.Random(seed))


# ------------------------------------------------------------------ blocks


def _admitted(kernel: Kernel, block: Block) -> Any:
    kernel.admit.check_structure(block)
    table = kernel.admit.load_block(block)
    kernel.admit.set_deaths_apart(table, 0, table.count)
    rows = (table.count, bytes(table.rows), bytes(table.properties), bytes(table.bodies))
    return rows, table.routes.entries


def block(data: bytes) -> None:
    """A block, its checksum repaired: decoded, admitted, cut, joined, packed."""
    data = blocks.repaired(data)
    even = FAST.even_block.even_block(data)
    if with_twin(data):
        same("kernels read", even, SLOW.even_block.even_block(data))
    try:
        _unverified(data)
        made = Block.decode(data)
    except BlockError:
        return
    admitted = outcome(lambda: _admitted(FAST, made), BlockError)
    whole = not (isinstance(admitted[0], str))
    if with_twin(data):
        same("kernels admit", admitted, outcome(lambda: _admitted(SLOW, made), BlockError))
    if not whole or not made.count:
        return
    count = made.count
    parts = [(made, 0, (count + 1) // 2), (made, count // 2, count)]
    joined = concat(parts)
    given = [(made.buffer, first, last, 0) for _, first, last in parts]
    for kernel in (FAST, SLOW) if with_twin(data) else (FAST,):
        same("join and concat", kernel.join.join(_views(given)), joined)
        same("digests", _digest(kernel, data), _digest(FAST, joined[:0] or data))
    again = Block.decode(made.slice(0, count))
    same("bodies", [bytes(again.body(i)) for i in range(count)], _bodies(made))
    same("packed", _bodies(Block.decode(compress(made.buffer, 1))), _bodies(made))
    if with_twin(data):
        ids = FAST.publisher_ids.publisher_ids(made)
        same("publisher ids", ids, SLOW.publisher_ids.publisher_ids(made))


def _unverified(data: bytes) -> None:
    """Join what was not admitted, too: refused, or to the same bytes."""
    made = Block.decode(data, verify=False)
    if made.count and not data[7]:
        first = made.count // 3
        given = outcome(lambda: concat([(made, first, made.count)]), BlockError)
        parts = [(bytes(data), 0, first, made.count)]
        for kernel in (FAST, SLOW) if with_twin(data) else (FAST,):
            joined = outcome(partial(kernel.join.join, parts), BlockError)
            same("join and concat of what is not verified", _or_refused(joined), _or_refused(given))


def _or_refused(found: Any) -> Any:
    """Without the words of a refusal: which of several faults is named may differ."""
    return found[0] if isinstance(found, tuple) else found


def _bodies(made: Block) -> list[bytes]:
    return [bytes(made.body(i)) for i in range(made.count)]


def _digest(kernel: Kernel, data: bytes) -> int:
    table = kernel.admit.load_block(Block.decode(data))
    return int(kernel.digest.content_digest(Selection(table, 0, table.count)))


def _views(given: list[Any]) -> list[Any]:
    return [(bytes(buffer), 0, first, last) for buffer, first, last, _ in given]


def block_seeds() -> Iterator[bytes]:
    """Blocks with every column, compressed ones, and others with one field changed."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        yield blocks.valid(chance)
        yield blocks.mutated(chance)
    yield compress(encode([b"x" * 200] * 9, [f.PLAIN] * 9, (b"", b"q")), 512)


# ------------------------------------------------------------------ AMQP 1.0 sections


def _sections(kernel: Kernel, data: bytes) -> Any:
    body = kernel.sections_in.is_body(memoryview(data))
    names = {b"\xa1\x01k": 2}
    fields = outcome(
        lambda: kernel.section_fields.read_fields(data, 0, {0: 1, 3: 3}, names, [None] * 4),
        MalformedSections,
    )
    entries = repr(
        outcome(lambda: kernel.sections_in.whole_entries(memoryview(data)), MalformedSections)
        if data
        else ""
    )
    try:
        read = kernel.sections_in.read_sections(memoryview(data))
    except MalformedSections as error:
        return body, repr(fields), entries, str(error), error.condition
    head = kernel.sections_out.write_sections(
        read.properties, b"x", b"k", (4, -1, True, 1), {b"x-opt-a": b"\x41"}, False
    )
    kept = outcome(
        lambda: kernel.sections_out.sections_to_keep(
            read.properties, memoryview(data), read.sections, read.pieces
        ),
        MalformedSections,
    )
    return body, repr(fields), read, head, kept, entries


def sections(data: bytes) -> None:
    """A message of AMQP 1.0: to AMQP 0.9.1 and back."""
    found = _sections(FAST, data)
    if len(found) == 6:
        read = found[2]
        _read_by_the_codec(read.properties)
        same("properties", FAST.deliver.readable(read.properties), read.properties)
        FAST.sections_in.read_sections(memoryview(found[3] + b"\x00\x53\x75\xa0\x01b"))
    if with_twin(data):
        same("kernels", found, _sections(SLOW, data))


def sections_seeds() -> Iterator[bytes]:
    """Messages that Qpid Proton encodes, those that the kernel makes of properties, and a map."""
    from proton import Data, Described, Message, symbol, timestamp, ulong

    nested = Data()
    nested.put_object({symbol("x-a"): [1, {"k": Described(ulong(7), [True])}], symbol("x-b"): "c"})
    yield bytes(nested.encode())

    for body in (b"data", "text", None, 5, [1, "a"], {"k": 1}):
        made = Message(body=body, inferred=isinstance(body, bytes), id=ulong(7), subject="s")
        made.properties = {"k": 1, "l": "text", "m": 1.5, "n": None, "t": timestamp(5)}
        made.annotations = {symbol("x-opt-a"): 1, symbol("x-b"): "c"}
        made.durable, made.priority, made.ttl, made.user_id = True, 3, 5.0, b"guest"
        made.correlation_id, made.reply_to, made.creation_time = b"id", "/queues/q", 3.0
        yield bytes(made.encode())
        yield bytes(Message(body=body, address="/queues/q").encode())
    for raw in property_seeds():
        head = FAST.sections_out.write_sections(raw, b"x", b"k", (4, 5, True, 1), {}, False)
        yield head + b"\x00\x53\x75" + struct.pack(">BI", 0xB0, 3) + b"abc"


# ------------------------------------------------------------------ AMQP 1.0 frames


def input_frames(data: bytes) -> None:
    """Received bytes cut into pieces of few events, in reads as long as the first octet says."""
    if len(data) < 2:
        return
    step, most, read = data[0] + 1, 10 * data[1], memoryview(data)[2:]
    fast, slow = FAST.link_runs.InputFrames(), SLOW.link_runs.InputFrames()
    twin, at = with_twin(data), 0
    while at < len(read):
        view = read[at : at + step]
        size = fast.piece(view, most, 100)
        assert 0 < size <= len(view), (size, len(view))
        if twin:
            same("kernels", size, slow.piece(view, most, 100))
        at += size


def input_frames_seeds() -> Iterator[bytes]:
    """Transfers, dispositions of one delivery and of many, empty frames, a header."""
    for seed in range(SEEDS):
        chance = random.Random(seed)
        made = bytes((chance.randrange(256), chance.randrange(256))) + b"AMQP\0\1\0\0"
        for _ in range(chance.randrange(1, 9)):
            first = chance.randrange(1 << 16)
            named = struct.pack(">BIBI", 0x70, first, 0x70, first + chance.randrange(200))
            one = chance.choice((named, named[:5] + b"\x40", b"\x43\x52\x07"))
            fields = b"\x41" + one + b"\x41\x00\x53\x24\x45"
            body = chance.choice(
                (
                    b"",
                    b"\x00\x53\x14\xc0\x03\x01\x43" + bytes(chance.randrange(40)),
                    b"\x00\x53\x15\xc0" + bytes((len(fields) + 1, 5)) + fields,
                    b"\x00\x53\x15\xd0" + struct.pack(">II", len(fields) + 4, 5) + fields,
                )
            )
            made += struct.pack(">IBBH", 8 + len(body), 2, 0, 0) + body
        yield made


TARGETS = (
    Target("scan", scan, scan_seeds, compiled=True),
    Target("deliveries", deliveries, deliveries_seeds, compiled=True),
    Target("properties", property_lists, property_seeds, compiled=True),
    Target("block", block, block_seeds, compiled=True),
    Target("sections", sections, sections_seeds, compiled=True),
    Target("input-frames", input_frames, input_frames_seeds, compiled=True),
)
