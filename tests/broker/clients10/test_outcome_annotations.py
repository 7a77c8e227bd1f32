"""Annotations of modified outcomes, of every type of AMQP 1.0: what comes back is what was said."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import (
    UNDESCRIBED,
    Array,
    Data,
    Described,
    byte,
    char,
    decimal32,
    decimal64,
    decimal128,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)

from tests.broker.clients10.test_attach_fields import BROKEN, array, frame, listed
from tests.broker.clients10.test_connection import Client
from tests.broker.clients10.test_links import (
    OUTCOMES,
    asked,
    consumer,
    deliver,
    modify,
    opened,
    received,
)
from warren_broker.clients10 import link_requests as asks
from warren_machines.queue import commands
from warren_machines.queue.annotations import (
    ANNOTATIONS_BYTES_MAX,
    DELIVERY_TIME,
    DELIVERY_TIME_MAX,
    as_header,
    encoded_annotation,
    read_annotations,
)
from warren_wire.errors import InvalidArgument, Refusal, SyntaxRefused

DISPOSITION = 0x15
ROLE, FIRST = b"\x41", b"\x43"


def encoded(value: Any) -> bytes:
    """A value as Proton encodes it."""
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


def decoded(raw: bytes) -> Any:
    """The only value in these bytes, which is simple."""
    data = Data()
    assert data.decode(raw) == len(raw)
    data.rewind()
    data.next()
    value = data.get_object()
    return bytes(value) if isinstance(value, memoryview) else value  # of memory that `data` frees


def kept(value: Any) -> bytes:
    """An annotation as a queue keeps it."""
    ((name, packed),), _ = read_annotations(encoded({symbol("x-v"): value}))
    assert name == "x-v"
    return packed


SIMPLE: list[tuple[Any, Any]] = [
    (True, True),
    (False, False),
    (byte(-3), -3),
    (ubyte(200), 200),
    (short(-300), -300),
    (ushort(60_000), 60_000),
    (int32(-70_000), -70_000),
    (int32(5), 5),
    (uint(0), 0),
    (uint(1 << 31), 1 << 31),
    (-(1 << 63), -(1 << 63)),
    (ulong(0), 0),
    (ulong((1 << 63) - 1), (1 << 63) - 1),
    (timestamp(1_700_000_000_000), 1_700_000_000_000),
    ("größe", "größe"),
    ("x" * 300, "x" * 300),
    (symbol("busy"), "busy"),
    (b"\xff\x00", b"\xff\x00"),
    (b"\xff" * 300, b"\xff" * 300),
]
TYPED: list[Any] = [
    None,
    1.5,
    float32(-0.25),
    char("ß"),
    uuid.UUID(int=7),
    ulong(1 << 63),
    decimal32(7),
    decimal64(8),
    decimal128(b"0123456789abcdef"),
    [],
    ["one", "two", 3, [4, {"five": symbol("six")}]],
    {},
    {"k1": "v1", symbol("k2"): int32(2), 3: [None, True]},
    Array(UNDESCRIBED, Data.STRING, "foo", "bar", "baz"),
    Array(UNDESCRIBED, Data.INT, 1, 2, 3),
    Array(UNDESCRIBED, Data.LONG),
    Array(symbol("of:kind"), Data.SYMBOL, symbol("a")),
    Described(symbol("my:type"), ["a", b"b"]),
]


@pytest.mark.parametrize("given_value, shown", SIMPLE, ids=repr)
def test_simple_values_lose_their_width_as_in_rabbitmq(given_value: Any, shown: Any) -> None:
    packed = kept(given_value)
    assert msgspec.msgpack.decode(packed) == shown
    back = decoded(encoded_annotation(packed))
    assert back == shown and isinstance(back, type(shown))
    assert as_header(packed) is not None


@pytest.mark.parametrize("value", TYPED, ids=repr)
def test_all_other_values_come_back_as_they_came(value: Any) -> None:
    """Before: the link ended."""
    packed = kept(value)
    assert encoded_annotation(packed) == encoded(value)
    assert as_header(packed) is None, "RabbitMQ does not show it over 0.9.1"


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.integers(-(1 << 31), (1 << 31) - 1).map(int32)
    | st.integers(0, (1 << 64) - 1).map(ulong)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    | st.binary(max_size=20)
    | st.from_regex("[a-z]{1,9}", fullmatch=True).map(symbol)
    | st.uuids()
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("abc", max_size=3), inner, max_size=4)
        | st.lists(st.text("abc", max_size=3), max_size=4).map(
            lambda each: Array(UNDESCRIBED, Data.STRING, *each)
        )
        | inner.map(lambda each: Described(symbol("d"), each))
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.from_regex("x-[a-z]{1,5}", fullmatch=True), VALUES, max_size=5))
def test_any_annotations_are_kept_and_shown(values: dict[str, Any]) -> None:
    raw = encoded({symbol(name): value for name, value in values.items()})
    pairs, ready_ms = read_annotations(raw)
    assert [name for name, _ in pairs] == sorted(values) and ready_ms == 0
    for name, packed in pairs:
        back, value = encoded_annotation(packed), values[name]
        if isinstance(value, (bool, int, str, bytes)):
            assert decoded(back) == value
        else:
            assert back == encoded(value)


@given(st.binary(max_size=60))
def test_what_is_shown_is_read_again_alike(noise: bytes) -> None:
    """A binary of any bytes, those of an encoded value among them, is itself."""
    for value in (noise, [noise], encoded([noise])):
        shown = b"\xa3\x03x-v" + encoded_annotation(kept(value))
        again = b"\xd1" + struct.pack(">II", len(shown) + 4, 2) + shown
        assert read_annotations(again)[0] == (("x-v", kept(value)),)


@pytest.mark.parametrize("value, ready_ms", [(5, 5), (-1, 0), (True, 0), ([7], 0), ("7", 0)])
def test_the_delivery_time_is_an_integer(value: Any, ready_ms: int) -> None:
    assert read_annotations(encoded({symbol(DELIVERY_TIME): value}))[1] == ready_ms
    far = read_annotations(encoded({symbol(DELIVERY_TIME): timestamp(DELIVERY_TIME_MAX)}))
    assert far[1] == DELIVERY_TIME_MAX


@pytest.mark.parametrize("raw", [b"", b"\x40", b"\xc1\x01\x00", b"\xd1\0\0\0\x04\0\0\0\0"])
def test_no_annotations(raw: bytes) -> None:
    assert read_annotations(raw) == ((), 0)


@pytest.mark.parametrize(
    "raw, kind, text",
    [
        (encoded([1]), SyntaxRefused, "instead of a map"),
        (encoded({"x-a": 1}), InvalidArgument, "keys are symbols"),
        (encoded({symbol("y"): 1}), InvalidArgument, "begin with 'x-'"),
        (encoded({ulong(7): 1}), InvalidArgument, "keys are symbols"),
        (b"\xc1\x08\x02\xa3\x03x-\xe4\x50\x01", InvalidArgument, "keys are symbols"),
        (b"\xc1\x09\x02\xa3\x03x-a\xa1\x01\xff", SyntaxRefused, "cannot be read"),
        (
            encoded({symbol("x-a"): ["x" * ANNOTATIONS_BYTES_MAX]}),
            InvalidArgument,
            f"{ANNOTATIONS_BYTES_MAX} is the limit",
        ),
    ],
    ids=["a list", "a string", "other symbols", "a number", "not ASCII", "not UTF-8", "large"],
)
def test_what_is_refused(raw: bytes, kind: type[Refusal], text: str) -> None:
    with pytest.raises(kind, match=text):
        read_annotations(raw)


# ------------------------------------------------------------------ over a connection


def test_a_modified_message_is_delivered_with_lists_maps_and_arrays() -> None:
    """Before: `is a list; give a boolean, an integer …`, and the link ended."""
    client = opened()
    receiver = consumer(client)
    said = {symbol(f"x-opt-{number}"): value for number, value in enumerate(TYPED)}
    modify(client, receiver, said, failed=True)
    (request,) = asked(client, commands.Modify)
    assert not receiver.state & receiver.REMOTE_CLOSED
    deliver(client, [b"a"], 1, acquired_count=1, annotations=((1, request.annotations),))
    ((_, message),) = received(receiver)
    for name, value in said.items():
        assert encoded(message.annotations[name]) == encoded(value)


def deep(count: int, inner: bytes = b"\x45") -> bytes:
    """A list in `count` - 1 others; inner: the innermost one."""
    value = inner
    for _ in range(count - 1):
        value = listed(value)
    return value


def outcome(client: Client, value: bytes) -> None:
    """The client settles its only delivery with an annotation of these bytes."""
    entries = b"\xa3\x03x-v" + value
    head = b"\xd1" + struct.pack(">II", len(entries) + 4, 2)
    modified = b"\x00\x53\x27" + listed(b"\x40", b"\x40", head + entries)
    client.connection.receive(frame(DISPOSITION, ROLE, FIRST, FIRST, b"\x41", modified))
    client.turn()


def described(count: int, value: bytes = b"\x45") -> bytes:
    """A value in so many descriptions."""
    return b"\x00\xa3\x01d" * count + value


def map32(*entries: bytes) -> bytes:
    """A map."""
    content = b"".join(entries)
    return b"\xd1" + struct.pack(">II", len(content) + 4, len(entries)) + content


EVERY = listed(
    *(b"\x40", b"\x41", b"\x42", b"\x43", b"\x44", b"\x45"),
    *(b"\x50\x07", b"\x51\xf9", b"\x52\x07", b"\x53\x07", b"\x54\xf9", b"\x55\xf9"),
    *(b"\x60\x01\x02", b"\x61\xff\x02", b"\x70\x01\0\0\x02", b"\x71\xff\0\0\x02"),
    *(b"\x72\x3f\0\0\0", b"\x73\0\0\0\x61", b"\x74\0\0\0\x01"),
    *(bytes((code,)) + b"\x01" + bytes(7) for code in (0x80, 0x81, 0x82, 0x83, 0x84)),
    *(bytes((code,)) + bytes(range(16)) for code in (0x94, 0x98)),
    *(b"\xa0\x01\xff", b"\xa1\x01a", b"\xa3\x01a", b"\xb0\0\0\1\0" + bytes(256)),
    *(b"\xb1\0\0\1\0" + b"b" * 256, b"\xb3\0\0\1\0" + b"c" * 256),
    *(described(1), described(1, b"\x53\x07"), map32(b"\xa1\x01k", b"\x54\x01")),
    *(map32(b"\x45", b"\x41", b"\x54\x01", b"\x54\x02"), array(2, 0x71, bytes(8))),
)
"""A list of a value of each constructor, and of maps with keys that are no strings."""


def test_every_constructor_comes_back_as_it_came() -> None:
    """Written by hand: what Proton decodes and encodes again is compared with something else."""
    client = opened()
    consumer(client)
    deliver(client, [b"a"])
    outcome(client, EVERY)
    (request,) = asked(client, commands.Modify)
    ((_, packed),) = request.annotations
    assert encoded_annotation(packed) == EVERY


@pytest.mark.parametrize(
    "value", [deep(64), deep(64, b"\xe0\x02\x00\xa1"), array(2, 0x45), described(63)]
)
def test_values_may_be_nested(value: bytes) -> None:
    client = opened()
    consumer(client)
    deliver(client, [b"a"])
    outcome(client, value)
    (request,) = asked(client, commands.Modify)
    assert len(request.annotations) == 1


TOO_DEEP = {
    "65 lists": deep(65),
    "a thousand lists": deep(1000),
    "ten thousand lists": deep(10_000),
    "64 descriptions of a list": described(64),
    "thirty thousand descriptions": described(30_000),
    "a hundred thousand descriptions": described(100_000),
    "two hundred thousand": described(200_000),
    "a described descriptor": b"\x00" * 2 + b"\x40" * 3,
    "a hundred thousand of them": b"\x00" * 100_000 + b"\x40" * 100_001,
    "a descriptor that is a list": b"\x00\xc0\x02\x01\x40\x40",
    "an array described by a list": b"\xe0\x05\x01\x00\x45\xa1\x00",
}


@pytest.mark.parametrize("value", [*BROKEN.values(), *TOO_DEEP.values()], ids=[*BROKEN, *TOO_DEEP])
def test_values_that_cannot_be_kept_end_the_link_and_return_the_message(value: bytes) -> None:
    client = opened()
    receiver = consumer(client)
    deliver(client, [b"a"])
    outcome(client, value)
    assert receiver.remote_condition.name == "amqp:decode-error"
    assert not asked(client, *OUTCOMES.values())
    assert asked(client, asks.EndConsumer) == [asks.EndConsumer(7, False)]
