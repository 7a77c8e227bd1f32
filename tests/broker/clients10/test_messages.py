"""An AMQP 1.0 message as received, stored and sent."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, char, symbol, timestamp, ulong

from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field, Timestamp
from warren_wire.amqp10.message.received import MalformedSections, MessageReader, read_message
from warren_wire.amqp10.message.sent import MessageWriter, encode_annotation, encode_message
from warren_wire.block.block import Block
from warren_wire.block.block import encode as encode_block
from warren_wire.block.layout import FORM_AMQP091
from warren_wire.kernel import CC, HEADERS, PERSISTENT, USER_ID, format_deliveries, format_get_ok
from warren_wire.kernel.properties import SECTIONS, examine

ROUTE = (b"", b"q")


def test_what_routing_and_storing_need() -> None:
    made = Message(
        body=b"data",
        inferred=True,
        durable=True,
        priority=31,
        ttl=2.5,
        address="/queues/q",
        user_id=b"guest",
        annotations={symbol("x-cc"): ["a"]},
    )
    found = read_message(memoryview(made.encode()))
    assert (found.form, bytes(found.body)) == (FORM_AMQP091, b"data")
    assert (found.ttl_ms, found.priority, found.durable) == (2500, 31, True)
    assert found.flags == PERSISTENT | HEADERS | CC | USER_ID
    assert (found.to, found.user_id) == ("/queues/q", b"guest")


def test_a_property_cc_gives_no_routing_keys() -> None:
    """Before: its link was ended with precondition-failed; RabbitMQ takes it for any property."""
    made = Message(body=b"b", inferred=True, properties={"CC": "a", "BCC": "b"})
    found = read_message(memoryview(made.encode()))
    assert found.flags & (CC | HEADERS) == HEADERS
    assert properties.decode(found.properties).headers == {"CC": "a", "BCC": "b"}
    made.annotations = {symbol("x-cc"): ["k"]}
    made.properties = {"h": 1}
    assert read_message(memoryview(made.encode())).flags & CC


def test_what_is_not_set() -> None:
    found = read_message(memoryview(b"\x00\x53\x75\xa0\x01b\x00\x53\x75\xa0\x01c"))
    assert bytes(found.body) == b"bc"
    assert found[3:] == (None, None, HEADERS, False, None, None)  # that there are two
    found = read_message(memoryview(b"\x00\x53\x75\xa0\x01b"))
    assert found[3:] == (None, None, 0, False, None, None)
    assert found.properties == properties.NONE


def test_a_malformed_message_is_refused() -> None:
    with pytest.raises(MalformedSections, match="^header section at byte 0: it has 6 fields"):
        read_message(memoryview(b"\x00\x53\x70\xc0\x07\x06\x40\x40\x40\x40\x40\x40"))


def test_a_message_as_sent() -> None:
    said = {"x-opt-a": "text", "x-opt-b": True, "x-opt-c": b"\xff", "x-opt-d": False}
    raw = properties.encode(properties.Properties(headers={"x-delivery-count": 1}, priority=7))
    head, body = encode_message(
        FORM_AMQP091,
        raw,
        b"data",
        exchange=b"ex",
        routing_key=b"key",
        ttl_ms=1500,
        acquired_count=5,
        delivery_count=3,
        annotations={
            name.encode(): encode_annotation(value)
            for name, value in {**said, "x-delivery-count": 30}.items()
        },
    )
    assert body == b"data"
    found = Message()
    found.decode(bytes(head) + bytes(body))
    assert (found.ttl, found.priority, found.first_acquirer, found.delivery_count) == (1.5, 7, 0, 3)
    assert dict(found.annotations or {}) == {
        "x-exchange": "ex",
        "x-routing-key": "key",
        "x-acquired-count": 5,
        "x-delivery-count": 3,
        **said,
    }


def annotations_of(pieces: Iterable[Any]) -> dict[str, Any]:
    found = Message()
    found.decode(b"".join(map(bytes, pieces)))
    return dict(found.annotations or {})


def test_a_message_that_was_delivered_before_says_how_often() -> None:
    """As over AMQP 0.9.1, and as RabbitMQ does; a count of 0 is not there."""
    route = {"x-exchange": "", "x-routing-key": "q"}
    raw = properties.encode(properties.Properties(message_id="m"))
    block = Block.decode(encode_block([b"data"] * 2, [raw] * 2, ROUTE, 4, None))
    writer = MessageWriter()
    for at, acquired, failed in ((0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 3, 2), (0, 0, 0)):
        counts = {"x-acquired-count": acquired, "x-delivery-count": failed}
        expected = {**route, **{name: count for name, count in counts.items() if count}}
        assert annotations_of(writer.encode(block, at, acquired, failed)) == expected


# ------------------------------------------------------------------ kept as they came

ID = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")
FOOTER = b"\x00\x53\x78\xc1\x08\x02\xa3\x03x-f\x55\x01"


INNER: dict[Any, Any] = {"c": ID}


def rich(**fields: Any) -> bytes:
    """A message with much that 0.9.1 cannot express."""
    made = Message(body=b"data", inferred=True, id=ulong(7), address="/queues/q", subject="s")
    made.expiry_time = made.creation_time = 12345.678
    made.group_id, made.group_sequence, made.reply_to_group_id = "g", 3, "r"
    made.properties = {"a": ulong(3), "x-b": ID, "x-c": b"text", "d": [1, 2]}
    made.annotations = {
        symbol("x-a"): char("c"),
        symbol("b"): INNER,
        symbol("x-cc"): ["k"],
        symbol("x-basic-type"): "t",
        symbol("x-opt-rabbitmq-received-time"): timestamp(5),
    }
    for name, value in fields.items():
        setattr(made, name, value)
    return bytes(made.encode())


def sections(data: bytes) -> dict[int, bytes]:
    """The sections of a message from its annotations on; those of data one after another."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        code = data[at + 2]
        short, width = data[at + 3] >> 4, 0
        if short in (0xA, 0xC):
            width = 1
        elif short in (0xB, 0xD):
            width = 4
        end = at + 4 + width + int.from_bytes(data[at + 4 : at + 4 + width], "big")
        if code > 0x71:
            found[code] = found.get(code, b"") + data[at:end]
        at = end
    return found


def through(data: bytes) -> tuple[bytes, bytes, bytes]:
    """A message that was stored and sent: it, and what was stored."""
    found = read_message(memoryview(data))
    assert examine(found.properties) >> 40 == found.flags
    parts = encode_message(
        found.form, found.properties, bytes(found.body), exchange=b"ex", routing_key=b"key"
    )
    return b"".join(map(bytes, parts)), found.properties, bytes(found.body)


@pytest.mark.parametrize(
    "data",
    [
        rich(),
        rich() + FOOTER,
        rich() + b"\x00\x53\x75\xa0\x00\x00\x53\x75\xa0\x02ab" + FOOTER,
        rich(body={"a": ID}, inferred=False),
        rich(id=b"\x00\xff", correlation_id="c" * 300),
        rich(annotations={}, properties={}),
        rich(annotations={symbol("x-a"): 1}),
        rich(properties={"plain": 1}),
        b"\x00\x53\x76\xc0\x03\x01\x54\x01\x00\x53\x76\x45",
        b"\x00\x53\x75\xa0\x01a\x00\x53\x75\xb0\x00\x00\x00\x01b",
    ],
    ids=["rich", "footer", "datas", "value", "ids", "few", "x", "plain", "sequences", "bare"],
)
def test_a_message_leaves_as_it_came(data: bytes) -> None:
    out, _, _ = through(data)
    came, left = sections(data), sections(out)
    one, other = Message(), Message()
    one.decode(data)
    other.decode(out)
    if 0x75 in came:
        assert read_message(memoryview(out)).body == read_message(memoryview(data)).body
        assert left.pop(0x75).count(b"\x00\x53\x75") == came.pop(0x75).count(b"\x00\x53\x75")
    left.pop(0x72)
    came.pop(0x72, None)
    for code, value in list(came.items()):
        if value[3:4] == b"\x45" or (value[3:4] == b"\xd1" and value[8:12] == bytes(4)):
            del came[code]  # an empty section and none say the same
    if came.get(0x74, b"")[3:4] == b"\xd1" and left.get(0x74, b"")[3:4] == b"\xc1":
        assert left.pop(0x74)[6:] == came.pop(0x74)[12:]
    assert left == came
    annotations = dict(other.annotations or {})
    assert annotations.pop(symbol("x-exchange")) == "ex"
    assert annotations.pop(symbol("x-routing-key")) == "key"
    assert annotations == dict(one.annotations or {})
    again, _, _ = through(out)
    assert sections(again).get(0x73) == left.get(0x73)


def test_what_was_kept_is_hidden_from_091() -> None:
    data = rich()
    stored = read_message(memoryview(data))
    assert b"x-warren-sections" in stored.properties
    plain = encode_block([b"data"], [properties.encode(properties.Properties(priority=1))], ROUTE)
    kept = encode_block([b"data"], [stored.properties], ROUTE)
    for both, visible in ((plain, []), (kept, ["CC", "timestamp_in_ms", "x-c", "a", "d"])):
        for more in (None, {"x-delivery-count": 2}):
            out, single = bytearray(), bytearray()
            block = Block.decode(both)
            args = (1, "tag", 1, False, 4096, more)
            assert format_deliveries(out, block, 0, 1, *args) == ()
            format_get_ok(single, block, 0, 1, 1, False, 0, 4096, more)
            for frames in (out, single):
                raw = content_header(bytes(frames))
                names = list(properties.headers(raw))
                assert sorted(names) == sorted([*visible, *(more or {})])
                assert properties.decode(raw).message_id == ("7" if visible else None)


def content_header(frames: bytes) -> bytes:
    """The properties in the second frame."""
    at = 7 + int.from_bytes(frames[3:7], "big") + 1
    assert frames[at] == 2
    return frames[at + 7 + 12 : at + 7 + int.from_bytes(frames[at + 3 : at + 7], "big")]


def test_a_dead_letter_keeps_its_sections() -> None:
    data = rich() + FOOTER
    stored = read_message(memoryview(data))
    headers: dict[str, Any] = dict(properties.headers(stored.properties))
    death = {"count": Field("l", 1), "reason": "rejected", "queue": "q", "time": Timestamp(7)}
    headers["x-death"] = [death | {"exchange": "ex", "routing-keys": ["k"]}]
    headers |= {"x-first-death-queue": "q", "x-last-death-queue": "q"}
    raw = properties.replace(stored.properties, headers=headers, expiration=None)
    parts = encode_message(0, raw, b"data", exchange=b"dlx", routing_key=b"k")
    one, other = Message(), Message()
    one.decode(data)
    other.decode(b"".join(map(bytes, parts)))
    found = dict(other.annotations or {})
    (deaths,) = found.pop(symbol("x-opt-deaths")).elements
    assert (deaths["queue"], deaths["reason"], deaths["count"]) == ("q", "rejected", 1)
    assert found.pop(symbol("x-first-death-queue")) == "q"
    assert found.pop(symbol("x-last-death-queue")) == "q"
    assert (found.pop(symbol("x-exchange")), found.pop(symbol("x-routing-key"))) == ("dlx", "k")
    assert found == dict(one.annotations or {})
    assert other.properties == one.properties
    assert (other.id, other.subject, other.address) == (ulong(7), "s", "/queues/q")


@pytest.mark.parametrize(
    "sections",
    [b"", b"x", FOOTER, b"\x00\x53\x73\xc0\x08\x02\x40\xa0\x05admin\x00\x53\x75\xa0\x00"],
    ids=["nothing", "garbage", "no data", "another user"],
)
def test_sections_that_a_091_client_made_are_not_sent(sections: bytes) -> None:
    headers = {SECTIONS: Field("x", sections), "x-a": 1}
    for user in (None, "guest"):
        raw = properties.encode(properties.Properties(headers=headers, user_id=user))
        found = Message()
        parts = encode_message(0, raw, b"data", exchange=b"", routing_key=b"q")
        found.decode(b"".join(map(bytes, parts)))
        assert (found.user_id or b"") == (user or "").encode()
        assert (found.annotations or {})[symbol("x-a")] == 1


@settings(max_examples=60, deadline=None)
@given(
    values=st.dictionaries(
        st.text("abcx-", min_size=1, max_size=9).map(lambda name: "x-t" + name),
        st.one_of(
            st.integers(0, 2**64 - 1).map(ulong),
            st.integers(-(2**63), 2**63 - 1),
            st.uuids(),
            st.binary(max_size=9),
            st.text(max_size=300),
            st.integers(-(2**50), 2**50).map(timestamp),
            st.booleans(),
            st.none(),
            st.floats(allow_nan=False),
        ),
        max_size=5,
    ),
    identifier=st.one_of(
        st.none(), st.uuids(), st.binary(max_size=9), st.text(max_size=300), st.just(ulong(3))
    ),
    user=st.none() | st.just(b"guest"),
    body=st.binary(max_size=300),
)
def test_from_10_to_091_and_back(
    values: dict[str, Any], identifier: Any, user: bytes | None, body: bytes
) -> None:
    one, other = Message(body=body, inferred=True, id=identifier), Message()
    if user is not None:
        one.user_id = user
    one.properties = values
    one.annotations = {symbol(name): value for name, value in values.items()}
    data = bytes(one.encode())
    one.decode(data)
    other.decode(through(data)[0])
    found = dict(other.annotations or {})
    assert found.pop(symbol("x-exchange")) == "ex"
    assert found.pop(symbol("x-routing-key")) == "key"
    for name in ("x-exchange", "x-routing-key"):
        values.pop(name, None)
    assert found == values
    assert (other.properties or {}) == (one.properties or {})
    assert (other.id, other.user_id or b"") == (one.id, user or b"")
    assert bytes(other.body) == body


# ------------------------------------------------------------------ what equals the last one

DATA_LONG = b"\x00\x80\0\0\0\0\0\0\0\x75"
HEADS = (
    b"",
    b"\x00\x53\x70\xc0\x02\x01\x41",
    b"\x00\x53\x70\xc0\x04\x03\x40\x40\x43",
    b"\x00\x53\x73\xc0\x05\x03\x40\x40\xa1\x00",
    b"\x00\x53\x74\xc1\x09\x02\xa1\x01k\xa0\x03\x00\x53\x75",
    b"\x00\x53\x70\xc0\x07\x06\x40\x40\x40\x40\x40\x40",
    rich(body=b"")[:-5],
)
DATA = (b"\x00\x53\x75", DATA_LONG, b"\x00\xa3\x10amqp:data:binary", b"\x00\x53\x77", b"")


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message, of which much is like that of others, and some are damaged."""
    body = draw(st.binary(max_size=8) | st.sampled_from((b"\x00\x53\x75\xa0\x01a", b"z" * 300)))
    wide = len(body) > 255 or draw(st.booleans())
    size = b"\xb0" + len(body).to_bytes(4, "big") if wide else b"\xa0" + bytes((len(body),))
    data = draw(st.sampled_from(HEADS)) + draw(st.sampled_from(DATA)) + size + body
    data += draw(st.sampled_from((b"", b"", b"", FOOTER, b"\x00\x53\x75\xa0\x01b")))
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data


@settings(deadline=None)
@given(st.lists(messages(), max_size=8))
def test_a_reader_that_compares_reads_what_one_that_does_not_reads(sent: list[bytes]) -> None:
    reader, last = MessageReader(), None
    for data in [each for one in sent for each in (one, one)]:
        body = reader.body_like_last(bytearray(data))
        if body is not None:
            assert last is not None
            expected = read_message(memoryview(data))
            assert bytes(body) == bytes(expected.body)
            assert last._replace(body=b"") == expected._replace(body=b"")
            continue
        try:
            expected = read_message(memoryview(data))
        except MalformedSections:
            with pytest.raises(MalformedSections):
                reader.read(data)
            continue
        found = reader.read(data)
        assert bytes(found.body) == bytes(expected.body)
        assert found._replace(body=b"") == expected._replace(body=b"")
        last = found
        reader.remember()


def test_what_is_like_the_last_message_is_not_parsed_again() -> None:
    reader = MessageReader()
    for head in (HEADS[1], HEADS[6]):
        message = head + b"\x00\x53\x75\xa0\x01a"
        assert reader.body_like_last(message) is None
        reader.read(message)
        assert reader.body_like_last(message) is None, "it has not been accepted"
        reader.remember()
        assert reader.body_like_last(message) == b"a"
        wide = b"\x00\x53\x75\xb0\x00\x00\x01\x00" + b"b" * 256
        assert reader.body_like_last(head + wide) == b"b" * 256
        assert reader.body_like_last(message + FOOTER) is None


PROPERTIES = (
    properties.NONE,
    properties.encode(properties.Properties(priority=7, headers={"x-a": "b", "c": 1})),
    bytes(read_message(memoryview(rich())).properties),
    bytes(read_message(memoryview(rich() + FOOTER)).properties),
    bytes(read_message(memoryview(rich() + b"\x00\x53\x75\xa0\x02ab")).properties),
    bytes(read_message(memoryview(rich(body={"a": 1}, inferred=False))).properties),
)
BODIES = (b"", b"data", b"data" * 100, b"dataab", bytes(rich(body={"a": 1}, inferred=False)[-20:]))
one_of = st.tuples(
    st.sampled_from(PROPERTIES),
    st.sampled_from(BODIES),
    st.integers(0, 1),
    st.booleans(),
    st.integers(0, 1),
)


@settings(deadline=None)
@given(st.lists(one_of, min_size=1, max_size=8))
def test_a_writer_that_compares_writes_what_one_that_does_not_writes(
    sent: list[tuple[bytes, bytes, int, bool, int]],
) -> None:
    routes = ((b"", b"q"), (b"ex", b"key"))
    writer = MessageWriter()
    for raw, body, route, acquired, count in [each for one in sent for each in (one, one)]:
        block = Block.decode(encode_block([body], [raw], routes[route], 4, None))
        written = b"".join(map(bytes, writer.encode(block, 0, acquired, count)))
        exchange, key = routes[route]
        expected = encode_message(
            block.form,
            raw,
            body,
            exchange=exchange,
            routing_key=key,
            acquired_count=acquired,
            delivery_count=count,
        )
        assert written == b"".join(map(bytes, expected))
