"""Ranges of blocks to frames, read back by another implementation (pamqp)."""

from __future__ import annotations

import random
from typing import Any

import pamqp.commands as spec
import pamqp.frame
import pytest
from pamqp.body import ContentBody
from pamqp.header import ContentHeader

from tests.wire.kernel import frames as f
from tests.wire.kernel.test_assemble import grown
from warren_wire.block import block as b
from warren_wire.block.block import Block, BlockError
from warren_wire.kernel import Kernel, MessageTable, Route, Selection, Unsendable

QUEUE = (b"", b"q")
FRAME_MAX = 4096


def read(out: bytes) -> list[tuple[int, Any]]:
    """All frames: (channel, pamqp's value)."""
    found = []
    while out:
        size, channel, value = pamqp.frame.unmarshal(bytes(out))
        assert size <= FRAME_MAX
        found.append((channel, value))
        out = out[size:]
    return found


def content(values: list[Any]) -> tuple[Any, Any, bytes, list[Any]]:
    """The next message of a list of values: method, properties, body; the rest."""
    method, header = values[0], values[1]
    assert isinstance(header, ContentHeader)
    body = b""
    at = 2
    while len(body) < header.body_size:
        assert isinstance(values[at], ContentBody)
        body += values[at].value
        at += 1
    assert len(body) == header.body_size
    return method, header.properties, body, values[at:]


def some() -> Block:
    """Messages of two routes; one without a body, one of exactly a frame, one larger."""
    bodies = [b"", b"a", b"m" * (FRAME_MAX - 8), b"n" * (FRAME_MAX - 7), b"o" * 3 * FRAME_MAX]
    properties = [
        f.PLAIN,
        b"\0\0",
        f.properties(priority=9, message_id=b"m"),
        f.properties(headers=f.table((b"h", b"t\1"))),
        f.PLAIN,
    ]
    routes = [(b"x", b"key"), (b"", b"q"), (b"", b"q"), (b"x", b"key"), (b"x", b"key")]
    return Block.decode(b.encode(bodies, properties, routes))


def test_deliveries(both: Kernel) -> None:
    block = some()
    out = bytearray(b"before")
    both.deliver.format_deliveries(out, block, 0, 5, 7, "tag", 2**40, False, FRAME_MAX)
    frames = read(out[6:])
    assert {channel for channel, _ in frames} == {7}
    values = [value for _, value in frames]
    for i in range(5):
        method, properties, body, values = content(values)
        assert isinstance(method, spec.Basic.Deliver)
        assert (method.consumer_tag, method.delivery_tag) == ("tag", 2**40 + i)
        assert (method.exchange.encode(), method.routing_key.encode()) == block.route(i)
        assert method.redelivered is False
        assert body == block.body(i)
        if i == 2:
            assert (properties.priority, properties.message_id) == (9, "m")
        if i == 3:
            assert properties.headers == {"h": True}
    assert values == []


def test_redelivered_with_counts(both: Kernel) -> None:
    out = bytearray()
    counts = {"x-delivery-count": 3, "x-acquired-count": 2**33}
    both.deliver.format_deliveries(out, some(), 1, 4, 7, "", 5, True, FRAME_MAX, counts)
    values = [value for _, value in read(out)]
    for i in range(1, 4):
        method, properties, body, values = content(values)
        assert method.redelivered is True and method.delivery_tag == 4 + i
        expected = {"h": True, **counts} if i == 3 else counts
        assert properties.headers == expected
        assert body == some().body(i)
    assert values == []


def test_nothing_and_beyond(both: Kernel) -> None:
    out = bytearray()
    both.deliver.format_deliveries(out, some(), 2, 2, 7, "t", 1, False, FRAME_MAX)
    assert out == b""
    for first, last in ((0, 6), (3, 2), (-1, 2)):
        with pytest.raises(BlockError, match="block of 5"):
            both.deliver.format_deliveries(out, some(), first, last, 7, "t", 1, False, FRAME_MAX)
    sections = Block.decode(b.encode([b""], [b""], (b"", b"q"), form=1))
    with pytest.raises(Unsendable, match="form 1"):
        both.deliver.format_deliveries(out, sections, 0, 1, 7, "t", 1, False, FRAME_MAX)


def test_damaged_offsets_do_not_leave_the_block(both: Kernel) -> None:
    data = bytearray(some().slice(0, 5))
    at = 32 + 8 + 6 * 4 + 2 * 4  # body_offsets[2]
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    block = Block.decode(bytes(data), verify=False)
    out = bytearray()
    with pytest.raises(Unsendable, match="outside") as found:
        both.deliver.format_deliveries(out, block, 0, 5, 7, "t", 1, False, FRAME_MAX)
    assert (out, found.value.ordinal, found.value.elsewhere) == (b"", 1, False)
    with pytest.raises(BlockError, match="checksum"):
        Block.decode(bytes(data))


@pytest.mark.parametrize("seed", range(40))
def test_pieces_are_the_same_frames(both: Kernel, seed: int) -> None:
    chance = random.Random(seed)
    table = grown(chance, 9)
    for size in (FRAME_MAX - 8, FRAME_MAX - 7, 5 * FRAME_MAX):
        table.append(Route(b"x", b"large", False), f.PLAIN, b"b" * size)
    table.append(Route(b"", b"bad", False), b"\x80\x00\x09x", b"body")
    block = Block.decode(both.assemble.assemble([Selection(table, 0, table.count)]))
    first = chance.randrange(block.count)
    last = chance.randrange(first, block.count) + 1
    headers = chance.choice([None, {"x-delivery-count": seed}])
    given = (block, first, last, 7, "t" * seed, 2**40, seed % 2 == 1, FRAME_MAX, headers)
    out, pieces = bytearray(), [b"before"]
    assert both.deliver.format_large(pieces, *given) == both.deliver.format_deliveries(out, *given)
    assert b"".join(pieces) == b"before" + out
    for piece in pieces[2::2]:
        assert isinstance(piece, memoryview) and piece.obj is block.buffer.obj


def test_pieces_of_what_cannot_be_sent_are_none(both: Kernel) -> None:
    pieces: list[bytes] = []
    large = f.properties(headers=f.table((b"h", b"x" + (5000).to_bytes(4, "big") + bytes(5000))))
    block = Block.decode(b.encode([b"1", b"2"], [f.PLAIN, large], QUEUE))
    with pytest.raises(Unsendable, match="frame of 4096") as found:
        both.deliver.format_large(pieces, block, 0, 2, 7, "t", 1, False, FRAME_MAX)
    assert (pieces, found.value.ordinal) == ([], 1)
    sections = Block.decode(b.encode([b""], [b""], QUEUE, form=1))
    with pytest.raises(Unsendable, match="form 1"):
        both.deliver.format_large(pieces, sections, 0, 1, 7, "t", 1, False, FRAME_MAX)
    with pytest.raises(BlockError, match="block of 2"):
        both.deliver.format_large(pieces, block, 0, 3, 7, "t", 1, False, FRAME_MAX)


def test_both_kernels_write_the_same(pair: tuple[Kernel, Kernel]) -> None:
    for seed in range(150):
        chance = random.Random(seed)
        table = grown(chance, 9)
        block = Block.decode(pair[0].assemble.assemble([Selection(table, 0, 9)]))
        first = chance.randrange(10)
        last = chance.randrange(first, 10)
        headers = chance.choice([None, {}, {"x-delivery-count": seed}])
        redelivered = chance.random() < 0.5
        tag = "t" * chance.choice([0, 5, 255])
        outs = []
        for kernel in pair:
            out = bytearray()
            kernel.deliver.format_deliveries(
                out, block, first, last, 65535, tag, 1, redelivered, FRAME_MAX, headers
            )
            outs.append(out)
        assert outs[0] == outs[1]
        assert len(read(outs[0])) >= 2 * (last - first)


def test_get_ok(both: Kernel) -> None:
    out = bytearray()
    both.deliver.format_get_ok(out, some(), 4, 3, 8, True, 42, FRAME_MAX, {"x-delivery-count": 1})
    method, properties, body, rest = content([value for _, value in read(out)])
    assert isinstance(method, spec.Basic.GetOk) and rest == []
    assert (method.delivery_tag, method.redelivered, method.message_count) == (8, True, 42)
    assert (method.exchange, method.routing_key) == ("x", "key")
    assert properties.headers == {"x-delivery-count": 1} and properties.delivery_mode == 2
    assert body == some().body(4)


def test_return(both: Kernel) -> None:
    table = MessageTable()
    table.append(Route(b"x", b"nowhere", True), f.properties(message_id=b"id"), b"r" * 9000)
    out = bytearray()
    both.deliver.format_return(out, table, 0, 3, 312, "NO_ROUTE", FRAME_MAX)
    method, properties, body, rest = content([value for _, value in read(out)])
    assert isinstance(method, spec.Basic.Return) and rest == []
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key) == ("x", "nowhere")
    assert properties.message_id == "id" and body == b"r" * 9000


def test_confirms(both: Kernel) -> None:
    out = bytearray()
    both.deliver.format_confirms(out, 3, 5, [(7, 9), (11, 11)])
    both.deliver.format_confirms(out, 3, 0, [(2**62, 2**62)], negative=True)
    both.deliver.format_confirms(out, 3, 0)
    found = [(type(v).__name__, v.delivery_tag, v.multiple) for _, v in read(out)]
    assert found == [
        ("Ack", 5, True),
        ("Ack", 7, False),
        ("Ack", 8, False),
        ("Ack", 9, False),
        ("Ack", 11, False),
        ("Nack", 2**62, False),
    ]
    assert read(out)[-1][1].requeue is False


@pytest.mark.parametrize(
    ("properties", "headers", "expected"),
    [
        (b"\0\0", {}, b"\x20\x00" + f.table()),
        (b"\0\0", {"a": 1}, b"\x20\x00" + f.table((b"a", b"l" + (1).to_bytes(8, "big")))),
        (
            b"\xd0\x00\x02ct\x01e\x02",
            {"a": -1},
            b"\xf0\x00\x02ct\x01e" + f.table((b"a", b"l" + b"\xff" * 8)) + b"\x02",
        ),
        (
            f.properties(
                headers=f.table((b"a", b"S\0\0\0\x01x"), (b"b", b"V"), (b"a", b"t\1")), priority=3
            ),
            {"a": 1},
            f.properties(
                headers=f.table((b"b", b"V"), (b"a", b"l" + (1).to_bytes(8, "big"))), priority=3
            ),
        ),
    ],
)
def test_headers_are_added_or_replaced(
    both: Kernel, properties: bytes, headers: dict[str, int], expected: bytes
) -> None:
    assert both.deliver.with_headers(properties, headers) == expected
    assert both.deliver.with_headers(memoryview(properties), headers) == expected


# ------------------------------------------------------------------ what cannot be sent as it is


BAD = (b"", b"\x80", b"\x80\x00\x09x", b"\xff\xff", b"\x20\x00\x00\x00\x00\x09\x01aV")


def headers_of(frames: bytes) -> list[dict[str, Any] | None]:
    """The headers of each content header among these frames."""
    found = []
    while frames:
        used, _, frame = pamqp.frame.unmarshal(frames)
        frames = frames[used:]
        if isinstance(frame, ContentHeader):
            found.append(frame.properties.headers)
    return found


@pytest.mark.parametrize("headers", [None, {"x-delivery-count": 3}])
def test_malformed_properties_are_replaced_and_named(
    both: Kernel, headers: dict[str, int] | None
) -> None:
    """They were stored unchecked, and ended the connection of every consumer."""
    for bad in BAD:
        block = Block.decode(b.encode([b"one", b"two", b"three"], [f.PLAIN, bad, f.PLAIN], QUEUE))
        out = bytearray()
        replaced = both.deliver.format_deliveries(
            out, block, 0, 3, 7, "t", 1, False, FRAME_MAX, headers
        )
        assert replaced == (1,)
        shown = headers_of(bytes(out))
        assert shown[1] == {"x-unreadable-properties": bytearray(bad), **(headers or {})}
        assert [shown[0], shown[2]] == [headers, headers]
        assert [frame.value for frame in bodies(bytes(out))] == [b"one", b"two", b"three"]
        out.clear()
        assert both.deliver.format_get_ok(out, block, 1, 7, 1, False, 0, FRAME_MAX, headers) == (1,)
        assert headers_of(bytes(out))[0]["x-unreadable-properties"] == bytearray(bad)
        assert both.deliver.format_get_ok(out, block, 2, 7, 1, False, 0, FRAME_MAX, headers) == ()


def bodies(frames: bytes) -> list[ContentBody]:
    """The content bodies among these frames."""
    found = []
    while frames:
        used, _, frame = pamqp.frame.unmarshal(frames)
        frames = frames[used:]
        if isinstance(frame, ContentBody):
            found.append(frame)
    return found


def frame_sizes(frames: bytes) -> list[int]:
    """Bytes of each frame."""
    sizes, at = [], 0
    while at < len(frames):
        sizes.append(8 + int.from_bytes(frames[at + 3 : at + 7], "big"))
        at += sizes[-1]
    return sizes


@pytest.mark.parametrize("headers", [None, {"x-delivery-count": 3, "x-acquired-count": 9}])
def test_a_history_that_has_grown_beyond_a_frame_loses_its_oldest_entries(
    both: Kernel, headers: dict[str, int] | None
) -> None:
    """Its content header went out in a frame larger than the client had agreed to."""
    entries = [f.death(b"q%d" % i, more=bytes(200)) for i in range(40)]
    raw = f.properties(headers=f.table((b"x-death", f.deaths(*entries)), (b"mine", b"t\1")))
    block = Block.decode(b.encode([b"x" * 9000, b"small"], [raw, f.PLAIN], QUEUE))
    for frame_max in (4096, 5000, 8192):
        out = bytearray()
        both.deliver.format_deliveries(out, block, 0, 2, 7, "t", 1, False, frame_max, headers)
        both.deliver.format_get_ok(out, block, 0, 7, 3, False, 0, frame_max, headers)
        assert max(frame_sizes(bytes(out))) <= frame_max
        for shown in headers_of(bytes(out))[::2]:
            assert shown is not None
            kept = [death["queue"] for death in shown["x-death"]]
            assert kept == [f"q{i}" for i in range(len(kept))] and 8 < len(kept) < 40
            assert shown["mine"] is True
            assert not headers or shown["x-delivery-count"] == 3


def test_a_message_that_fits_into_no_frame_of_this_client(both: Kernel) -> None:
    large = f.properties(headers=f.table((b"h", b"x" + (5000).to_bytes(4, "big") + bytes(5000))))
    block = Block.decode(b.encode([b"1", b"2", b"3"], [f.PLAIN, f.PLAIN, large], QUEUE))
    out = bytearray()
    for frame_max in (4096, len(large) + 19):
        with pytest.raises(Unsendable, match="agreed to") as found:
            both.deliver.format_deliveries(out, block, 1, 3, 7, "t", 1, False, frame_max)
        assert (out, found.value.ordinal, found.value.elsewhere) == (b"", 2, True)
        with pytest.raises(Unsendable):
            both.deliver.format_get_ok(out, block, 2, 7, 1, False, 0, frame_max)
    both.deliver.format_deliveries(out, block, 1, 3, 7, "t", 1, False, len(large) + 20)
    assert max(frame_sizes(bytes(out))) == len(large) + 20


def test_a_route_that_a_block_does_not_have(both: Kernel) -> None:
    data = bytearray(b.encode([b"1", b"2"], [f.PLAIN] * 2, [(b"", b"q"), (b"", b"r")]))
    at = 32 + 8 + 2 * 12 + 4  # route[1]
    data[at : at + 4] = b"\x02\0\0\0"
    block = Block.decode(bytes(data), verify=False)
    with pytest.raises(Unsendable, match="routes"):
        both.deliver.format_deliveries(bytearray(), block, 0, 2, 7, "t", 1, False, FRAME_MAX)
    with pytest.raises(BlockError, match="route 2 of 2"):
        both.admit.check_structure(block)
