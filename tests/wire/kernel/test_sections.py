"""AMQP 1.0 messages to AMQP 0.9.1 properties and back, in both kernels."""

from __future__ import annotations

import struct
import uuid
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, int32, symbol, timestamp, ubyte, uint, ulong, ushort

from tests.wire.kernel.conftest import loaded
from warren_wire.amqp091 import properties
from warren_wire.amqp091.fields import Field, Timestamp
from warren_wire.amqp10.message.received import read_message
from warren_wire.kernel import Kernel
from warren_wire.kernel.section_types import MalformedSections, SectionsRead

BODY = b"\x00\x53\x75\xa0\x01b"
"""A data section."""
ID = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")


def message(**fields: Any) -> Message:
    """A message with one data section, where no other body is given."""
    made = Message(body=b"data", inferred=isinstance(fields.get("body", b""), bytes))
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def read(kernel: Kernel, data: bytes) -> SectionsRead:
    """Read a message."""
    found = kernel.sections_in.read_sections(memoryview(data))
    assert isinstance(found, SectionsRead)
    return found


def stored(kernel: Kernel, data: bytes) -> tuple[properties.Properties, bytes]:
    """What is stored of a message."""
    found = read(kernel, data)
    return properties.decode(found.properties), b"".join(data[a:b] for a, b in found.pieces)


def written(kernel: Kernel, raw: bytes, body: bytes = b"data", **given: bytes) -> bytes:
    """The message that is sent of stored properties and a body."""
    found = properties.decode(kernel.deliver.readable(raw)).type
    encoded = found == "amqp-1.0" and kernel.sections_in.is_body(memoryview(body))
    own = {name.replace("_", "-").encode(): value for name, value in given.items()}
    head = bytes(
        kernel.sections_out.write_sections(raw, b"ex", b"key", (-1, -1, True, 0), own, encoded)
    )
    if encoded:
        return head + body
    size = bytes((0xA0, len(body))) if len(body) < 256 else struct.pack(">BI", 0xB0, len(body))
    return head + b"\x00\x53\x75" + size + body


def sent(kernel: Kernel, some: properties.Properties, body: bytes = b"data") -> Message:
    """The same as Proton reads it."""
    found = Message()
    found.decode(written(kernel, properties.encode(some), body))
    return found


# ------------------------------------------------------------------ RabbitMQ's rows, 1.0 to 0.9.1


def test_properties_are_converted(both: Kernel) -> None:
    found, body = stored(
        both,
        message(
            durable=True,
            priority=3,
            ttl=20.0,
            id="msg-id",
            correlation_id="corr-id",
            user_id=b"user-id",
            reply_to="reply-to",
            group_id="group-id",
            creation_time=10.0,
            content_type=symbol("ctype"),
            content_encoding=symbol("cenc"),
            annotations={symbol("x-basic-type"): "kind"},
        ).encode(),
    )
    assert found == properties.Properties(
        delivery_mode=2,
        priority=3,
        expiration="20000",
        message_id="msg-id",
        correlation_id="corr-id",
        user_id="user-id",
        reply_to="reply-to",
        app_id="group-id",
        timestamp=10,
        content_type="ctype",
        content_encoding="cenc",
        type="kind",
    )
    assert body == b"data"


@pytest.mark.parametrize(
    ("given", "kept", "header"),
    [
        ("m" * 255, "m" * 255, None),
        ("m" * 256, None, Field("S", "m" * 256)),
        (ID, f"urn:uuid:{ID}", None),
        (ulong(9876789), "9876789", None),
        (ulong(2**64 - 1), str(2**64 - 1), None),
        (b"\x00\xff", None, Field("x", b"\x00\xff")),
    ],
    ids=["text", "long", "uuid", "ulong", "greatest", "binary"],
)
def test_identifiers_of_all_types(both: Kernel, given: Any, kept: Any, header: Any) -> None:
    made = message(id=given, correlation_id=given).encode()
    found, _ = stored(both, made)
    assert (found.message_id, found.correlation_id) == (kept, kept)
    names = ["x-message-id", "x-correlation-id"] if header else []
    assert properties.headers(read(both, made).properties) == dict.fromkeys(names, header)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (b"\x55\x05", "5"),
        (b"\x55\xfb", "-5"),
        (b"\x81" + b"\xff" * 8, "-1"),
        (b"\x81\x7f" + b"\xff" * 7, str(2**63 - 1)),
        (b"\x54\x80", "-128"),
        (b"\x71\x80\x00\x00\x00", str(-(2**31))),
        (b"\x61\x80\x00", "-32768"),
        (b"\x51\xff", "-1"),
        (b"\x50\xff", "255"),
        (b"\x60\xff\xff", "65535"),
        (b"\x43", "0"),
        (b"\x52\xff", "255"),
        (b"\x70" + b"\xff" * 4, str(2**32 - 1)),
    ],
)
def test_identifiers_that_are_other_integers_stay_what_they_are(
    both: Kernel, value: bytes, kept: str
) -> None:
    """As the Go client of RabbitMQ sends an int, which is no type of an identifier."""
    fields = b"\x06" + value + b"\x40" * 4 + value
    section = b"\x00\x53\x73\xc0" + bytes((len(fields),)) + fields
    found, _ = stored(both, section + BODY)
    assert (found.message_id, found.correlation_id) == (kept, kept)
    assert section in written(both, read_message(memoryview(section + BODY)).properties, b"b")


def test_types_of_application_properties(both: Kernel) -> None:
    made = message(
        properties={
            "long": 5,
            "far": -(2**40),
            "ulong": ulong(5),
            "string": "é",
            "binary": b"data",
            "symbol": symbol("sym"),
            "ubyte": ubyte(255),
            "ushort": ushort(3),
            "uint": uint(2**32 - 1),
            "int": int32(-4),
            "double": 5.0,
            "timestamp": timestamp(7999),
            "before": timestamp(-1),
            "true": True,
            "null": None,
            "uuid": ID,
            "infinite": float("inf"),
            "nan": float("nan"),
            "k" * 256: "dropped",
        }
    )
    assert properties.headers(read(both, made.encode()).properties) == {
        "long": Field("l", 5),
        "far": Field("l", -(2**40)),
        "ulong": Field("l", 5),
        "string": Field("S", "é"),
        "binary": Field("S", "data"),
        "symbol": Field("S", "sym"),
        "ubyte": Field("B", 255),
        "ushort": Field("u", 3),
        "uint": Field("i", 2**32 - 1),
        "int": Field("I", -4),
        "double": Field("d", 5.0),
        "timestamp": Field("T", 7),
        "before": Field("T", 2**64 - 1),
        "true": Field("t", True),
        "null": Field("V", None),
    }


def test_annotations_become_headers(both: Kernel) -> None:
    made = message(
        annotations={
            symbol("x-cc"): ["a", "b"],
            symbol("x-list"): [1, "l", {"k": ID, "v": None}],
            symbol("x-exchange"): "dropped",
            symbol("x-routing-key"): "dropped",
            symbol("x-death"): "dropped",
            symbol("x-opt-rabbitmq-received-time"): timestamp(99),
            symbol("other"): "dropped",
        }
    )
    assert stored(both, made.encode())[0].headers == {
        "CC": ["a", "b"],
        "x-list": [1, "l", {"v": None}],
        "timestamp_in_ms": 99,
    }


@pytest.mark.parametrize("value", ["a", 7, [1], {"a": "b"}])
def test_further_routing_keys_are_strings(both: Kernel, value: Any) -> None:
    made = message(annotations={symbol("x-cc"): value}).encode()
    with pytest.raises(MalformedSections, match="bad value for 'x-cc'") as caught:
        read(both, made)
    assert caught.value.condition == "amqp:invalid-field"


def test_basic_annotations_count_where_the_header_is_silent(both: Kernel) -> None:
    annotations = {
        symbol("x-basic-delivery-mode"): ubyte(2),
        symbol("x-basic-priority"): ubyte(9),
        symbol("x-basic-expiration"): "60",
    }
    found, _ = stored(both, message(annotations=annotations).encode())
    assert (found.delivery_mode, found.priority, found.expiration) == (2, 9, "60")
    found, _ = stored(both, message(annotations=annotations, priority=1, ttl=1.0).encode())
    assert (found.priority, found.expiration) == (1, "1000")


@pytest.mark.parametrize(
    ("address", "queue"),
    [("/queues/my%20queue%2F", "my queue/"), ("/exchanges/x/k", "/exchanges/x/k"), ("q", "q")],
)
def test_a_reply_address_becomes_a_queue(both: Kernel, address: str, queue: str) -> None:
    assert stored(both, message(reply_to=address).encode())[0].reply_to == queue


@pytest.mark.parametrize(
    "user", [b"\x00guest", b"\xff", b"u" * 256], ids=["nul", "not UTF-8", "long"]
)
def test_a_user_id_that_is_no_short_string_is_dropped(both: Kernel, user: bytes) -> None:
    found = read(both, message(user_id=user).encode())
    assert found.user_id == user
    assert properties.decode(found.properties).user_id is None


def test_bodies(both: Kernel) -> None:
    data = b"\x00\x53\x75\xa0\x02ab"
    wide = b"\x00\x53\x75\xb0\x00\x00\x00\x01c"
    assert stored(both, data + wide) == (properties.Properties(), b"abc")
    value = b"\x00\x53\x77\xa1\x02ab"
    sequence = b"\x00\x53\x76\xc0\x03\x01\xa1\x00"
    footer = b"\x00\x53\x78\xc1\x01\x00"
    for body in (value, sequence, sequence + sequence, value + footer):
        found, kept = stored(both, body)
        assert (found.type, kept) == ("amqp-1.0", body)
        assert written(both, read(both, body).properties, body).endswith(body)
    assert stored(both, data + footer) == (properties.Properties(), b"ab")


def test_symbolic_and_wide_descriptors(both: Kernel) -> None:
    header = b"\x00\xa3\x10amqp:header:list\xc0\x02\x01\x41"
    body = b"\x00\x80" + (0x75).to_bytes(8, "big") + b"\xa0\x01b"
    assert stored(both, header + body) == (properties.Properties(delivery_mode=2), b"b")


# ------------------------------------------------------------------ 0.9.1 to 1.0


def test_stored_properties_are_sent(both: Kernel) -> None:
    found = sent(
        both,
        properties.Properties(
            content_type="text/plain",
            content_encoding="gzip",
            headers={
                "a-string": "a string",
                "a-long-string": "x" * 5000,
                "a-timestamp": Timestamp(1),
                "a-float": Field("f", 1.0),
                "a-void": None,
                "an-array": [1, 2],
                "a-table": {"a": 1},
                "x-table": {"a": [1, {"b": True}]},
                "CC": ["q1", "q2"],
            },
            delivery_mode=2,
            priority=98,
            correlation_id="corr",
            reply_to="reply/to",
            expiration="1",
            message_id=f"urn:uuid:{ID}",
            timestamp=99,
            type="45",
            user_id="banana",
            app_id="rmq",
        ),
    )
    assert (found.content_type, found.content_encoding) == ("text/plain", "gzip")
    assert (found.durable, found.priority, found.ttl, found.first_acquirer) == (True, 98, 0.001, 1)
    assert (found.id, found.correlation_id, found.user_id) == (ID, "corr", b"banana")
    assert (found.reply_to, found.group_id) == ("/queues/reply%2Fto", "rmq")
    assert found.creation_time == 99
    assert dict(found.annotations or {}) == {
        "x-table": {"a": [1, {"b": True}]},
        "x-cc": ["q1", "q2"],
        "x-basic-type": "45",
        "x-exchange": "ex",
        "x-routing-key": "key",
    }
    assert dict(found.properties or {}) == {
        "a-string": "a string",
        "a-long-string": b"x" * 5000,
        "a-timestamp": 1000,
        "a-float": 1.0,
        "a-void": None,
    }
    assert bytes(found.body) == b"data"


def test_a_message_without_properties(both: Kernel) -> None:
    found = written(both, properties.NONE, b"")
    head = b"\x00\x53\x70\xc0\x06\x05\x42\x40\x40\x41\x43"
    annotations = b"\xa3\x0ax-exchange\xa1\x02ex\xa3\x0dx-routing-key\xa1\x03key"
    annotations = b"\x00\x53\x72\xc1\x25\x04" + annotations
    assert found == head + annotations + b"\x00\x53\x75\xa0\x00"


def test_a_dead_letter_has_its_history(both: Kernel) -> None:
    death = {
        "count": Field("l", 2),
        "reason": "expired",
        "queue": "q",
        "time": Timestamp(7),
        "exchange": "",
        "routing-keys": ["a", "b"],
        "original-expiration": "60",
    }
    headers = {"x-death": [death, death], "x-first-death-queue": "q"}
    found = sent(both, properties.Properties(headers=headers)).annotations or {}
    assert found[symbol("x-first-death-queue")] == "q"
    deaths = found[symbol("x-opt-deaths")]
    assert [dict(one) for one in deaths.elements] == [
        {
            "ttl": 60,
            "queue": "q",
            "reason": "expired",
            "count": 2,
            "first-time": 7000,
            "last-time": 7000,
            "exchange": "",
            "routing-keys": found[symbol("x-opt-deaths")].elements[0][symbol("routing-keys")],
        }
    ] * 2
    assert deaths.elements[0][symbol("routing-keys")].elements == ("a", "b")


def test_encoded_bodies_of_others_are_checked(both: Kernel) -> None:
    raw = properties.encode(properties.Properties(type="amqp-1.0"))
    for body in (b"", b"\x00\x53\x77", b"\x00\x53\x70\x45" + BODY, BODY + b"x", b"{}"):
        found = Message()
        found.decode(written(both, raw, body))
        assert bytes(found.body) == body
        assert (found.annotations or {})[symbol("x-basic-type")] == "amqp-1.0"


def test_malformed_stored_properties_are_replaced(both: Kernel) -> None:
    found = Message()
    found.decode(written(both, b"\xff\xff\xff"))
    assert (found.annotations or {})[symbol("x-unreadable-properties")] == b"\xff\xff\xff"


def test_annotations_of_the_broker_replace_those_of_the_message(both: Kernel) -> None:
    raw = properties.encode(properties.Properties(headers={"x-delivery-count": 7, "x-a": 1}))
    found = Message()
    found.decode(written(both, raw, x_delivery_count=b"\x55\x02"))
    annotations = found.annotations or {}
    assert (annotations[symbol("x-delivery-count")], annotations[symbol("x-a")]) == (2, 1)


# ------------------------------------------------------------------ there and back

NAMES = st.text(st.characters(codec="utf-8", min_codepoint=1), min_size=1, max_size=20).filter(
    lambda name: not name.startswith("x-")
)
TEXTS = st.text(max_size=30).filter(lambda text: "\0" not in text)
SIMPLE = st.one_of(
    st.booleans(),
    st.none(),
    TEXTS,
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63 - 1).map(lambda n: Field("l", n)),
    st.integers(-(2**31), 2**31 - 1).map(lambda n: Field("I", n)),
    st.integers(0, 2**32 - 1).map(lambda n: Field("i", n)),
    st.integers(-128, 127).map(lambda n: Field("b", n)),
    st.integers(0, 255).map(lambda n: Field("B", n)),
    st.integers(-(2**15), 2**15 - 1).map(lambda n: Field("s", n)),
    st.integers(0, 2**16 - 1).map(lambda n: Field("u", n)),
    st.integers(0, 2**50).map(Timestamp),
)
NESTED = st.recursive(
    SIMPLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
X_NAMES = st.text("abcdef-", min_size=1, max_size=12).map(lambda name: "x-opt-t" + name)
SHORT = st.none() | st.text("abc/%é ~", min_size=1, max_size=20)
PROPERTIES = st.builds(
    properties.Properties,
    headers=st.none()
    | st.builds(
        lambda x, plain: (x | plain) or None,
        st.dictionaries(X_NAMES, NESTED, max_size=4),
        st.dictionaries(NAMES.filter(lambda name: name not in ("CC", "BCC")), SIMPLE, max_size=4),
    ),
    content_type=st.none() | st.text("abc/;=", max_size=20),
    delivery_mode=st.sampled_from([1, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=SHORT,
    reply_to=SHORT,
    expiration=st.none() | st.integers(0, 2**32 - 1).map(str),
    message_id=SHORT | st.uuids().map(lambda found: f"urn:uuid:{found}"),
    timestamp=st.none() | st.integers(0, 2**50),
    type=SHORT,
    user_id=SHORT,
    app_id=SHORT,
)


@settings(max_examples=60, deadline=None)
@given(some=PROPERTIES, body=st.binary(max_size=300))
def test_from_091_to_10_and_back(some: properties.Properties, body: bytes) -> None:
    raw = properties.encode(some)
    for kernel in (loaded("compiled"), loaded("interpreted")):
        data = written(kernel, raw, body)
        back = read(kernel, data)
        assert properties.decode(back.properties) == properties.decode(raw)
        assert properties.headers(back.properties) == properties.headers(raw)
        assert b"".join(data[a:b] for a, b in back.pieces) == body


def samples() -> list[bytes]:
    """Messages with every section and many types."""
    inside = {"a": [1, {"b": [ID, b"c", 1.5]}], "n": None, "t": timestamp(5)}
    rich = message(
        durable=True,
        priority=3,
        ttl=20.0,
        id=ID,
        correlation_id=ulong(7),
        user_id=b"guest",
        address="/queues/q",
        subject="s",
        reply_to="/queues/r",
        properties={"a": 1, "b": "two", "c": ulong(3), "d": True, "e": timestamp(1)},
        annotations={symbol("x-a"): inside, symbol("x-cc"): ["k"], symbol("x-basic-type"): "t"},
        instructions={symbol("x-i"): 1},
    )
    valued = message(body=inside, annotations={symbol("x-array"): [1, 2]})
    footer = b"\x00\x53\x78\xc1\x01\x00"
    return [rich.encode() + footer, valued.encode(), BODY + BODY]


def outcome(kernel: Kernel, data: bytes) -> object:
    """What reading gives: the values, or the error's text."""
    try:
        return read(kernel, data)
    except MalformedSections as error:
        return str(error)


@pytest.mark.parametrize("seed", range(3))
def test_mutated_messages_are_read_or_refused_alike(pair: tuple[Kernel, Kernel], seed: int) -> None:
    random = Random(seed)
    refused = 0
    for _ in range(400):
        data = bytearray(random.choice(samples_made))
        for _ in range(random.randrange(1, 4)):
            at = random.randrange(len(data))
            kind = random.randrange(4)
            if kind == 0:
                data[at] = random.randrange(256)
            elif kind == 1:
                data[at] = random.choice(b"\x00\x40\x45\xa1\xb1\xc0\xd0\xc1\xd1\xe0\xf0\x53\xff")
            elif kind == 2:
                del data[at:]
            else:
                data[at:at] = random.randbytes(random.randrange(1, 5))
            if not data:
                data += b"\x00"
        one, other = (outcome(kernel, bytes(data)) for kernel in pair)
        assert one == other, bytes(data)
        if isinstance(one, str):
            refused += 1
            continue
        assert isinstance(one, SectionsRead)
        properties.decode(one.properties)  # what is stored can be read
        again = [written(kernel, one.properties) for kernel in pair]
        assert again[0] == again[1]
        read(pair[0], again[0])
    assert 50 < refused < 400


samples_made = samples()


def test_every_prefix_is_refused(both: Kernel) -> None:
    whole = samples_made[1]
    for size in range(len(whole)):
        with pytest.raises(MalformedSections):
            read(both, whole[:size])


def nested(depth: int, code: int = 0xD0) -> bytes:
    """A value of lists in lists."""
    value = b"\x40"
    for _ in range(depth):
        value = struct.pack(">BII", code, len(value) + 4, 1) + value
    return value


def annotated(value: bytes) -> bytes:
    """A message with one annotation."""
    content = b"\xa3\x03x-a" + value
    return b"\x00\x53\x72" + struct.pack(">BII", 0xD1, len(content) + 4, 2) + content + BODY


def test_a_bomb_of_nested_types_is_refused(both: Kernel) -> None:
    assert read(both, annotated(nested(64))).properties
    text = "message-annotations section at byte 0: the value at byte .* deeper than 64"
    with pytest.raises(MalformedSections, match=text):
        read(both, annotated(nested(65)))
    with pytest.raises(MalformedSections, match="deeper than 64"):
        read(both, annotated(b"\x00" * 5000))
    many = struct.pack(">BIIB", 0xF0, 5, 2**32 - 1, 0x40)
    with pytest.raises(MalformedSections, match="4294967295 values without bytes; the limit"):
        read(both, annotated(many))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "the message of 0 bytes has no body"),
        (b"\x00\x53\x70\x45", "the message of 4 bytes has no body"),
        (b"abc", "^at byte 0: no section begins there"),
        (BODY + b"\x00\x53\x79\x40", "^at byte 6: no section begins there"),
        (BODY + b"\x00\x53\x70\x45", "header section at byte 6: it follows the data section"),
        (BODY + b"\x00\x53\x77\x40", "byte 6: the body is of data sections already"),
        (b"\x00\x53\x70\x45" * 2 + BODY, "byte 4: it follows the header section"),
        (b"\x00\x53\x70\x40" + BODY, "its value is no list but of constructor 0x40"),
        (b"\x00\x53\x70\xc0\x07\x06" + b"\x40" * 6 + BODY, "6 fields; the limit is 5"),
        (b"\x00\x53\x70\xc0\x03\x01\x50\x01" + BODY, "its durable is of a wrong type"),
        (b"\x00\x53\x70\xc0\x03\x01\x56\x02" + BODY, "is 2, neither 0 nor 1"),
        (b"\x00\x53\x73\xc0\x02\x01\x41" + BODY, "its message-id is of a wrong type"),
        (b"\x00\x53\x74\xc1\x02\x01\x40" + BODY, "a map of 1 keys and values"),
        (b"\x00\x53\x74\xc1\x03\x02\x40\x40" + BODY, "its key at byte 6 is no string"),
        (b"\x00\x53\x74\xc1\x06\x02\xa1\x01k\x40\x40" + BODY, "values end at byte"),
        (b"\x00\x53\x75\xa1\x01b", "its value is no binary but of constructor 0xa1"),
        (b"\x00\x53\x76\xa1\x01b", "its value is no list"),
        (b"\x00\x53\x75\xb0\xff\xff\xff\xff", "ends at byte 4294967303; the message ends at 8"),
        (b"\x00\x53\x75\xb0\xff", "has no size: the message ends at 5"),
        (b"\x00\x53\x77\x99", "unknown constructor 0x99 at byte 3"),
    ],
)
def test_malformed_messages_are_refused(both: Kernel, data: bytes, text: str) -> None:
    with pytest.raises(MalformedSections, match=text) as caught:
        read(both, data)
    assert caught.value.condition == "amqp:decode-error"


@pytest.mark.parametrize("ms", [-(1 << 63), -(1 << 63) + 5, -1001, -1000, -999, -1, 0, 999, 1000])
def test_a_timestamp_is_rounded_down_over_all_64_bits(both: Kernel, ms: int) -> None:
    """Found by the fuzzer: near the lowest one the compiled kernel left 64 bits."""
    data = message(properties={"t": timestamp(ms)}, body=b"b").encode()
    wanted = b"\1tT" + struct.pack(">q", ms // 1000)
    assert wanted in read(both, data).properties
