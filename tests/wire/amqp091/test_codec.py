"""Our method codec against pamqp's, an independent one."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pamqp.commands
import pamqp.decode
import pamqp.encode
import pamqp.frame
import pytest

from warren_wire.amqp091 import codec, fields, methods
from warren_wire.errors import FrameError, NotImplementedHere, Refusal, SyntaxRefused

OURS_ONLY = {"access.request", "access.request_ok"}
"""pamqp has no class 30."""
RENAMED = {
    "kind": "exchange_type",
    "no_wait": "nowait",
    "global_": "global_",
    "reserved_1": "ticket",
    "properties": "properties",
}

SAMPLES = {
    "octet": 9,
    "short": 513,
    "long": 1 << 20,
    "longlong": 1 << 40,
    "shortstr": "ünd",
    "longstr": b"bytes",
    "bit": True,
    "table": {"a": 1, "b": "c"},
}


def sample(method: type[methods.Method]) -> methods.Method:
    """Every field with a value of its own, but the constants that pamqp insists on."""
    values = {}
    for name, kind in codec.wire_types(method):
        if name.startswith("reserved"):
            continue
        values[name] = SAMPLES[kind]
    if "virtual_host" in values:
        values["virtual_host"] = "v"
    for name in (
        "queue",
        "exchange",
        "destination",
        "source",
        "consumer_tag",
        "routing_key",
        "locale",
        "kind",
        "mechanism",
    ):
        if name in values:
            values[name] = f"{name[:3]}-1"
    if method is methods.BasicQos:
        values["prefetch_count"] = 10
    return method(**values)


@pytest.mark.parametrize("method", list(codec.METHODS.values()), ids=lambda m: m.name)
def test_round_trip(method: type[methods.Method]) -> None:
    value = sample(method)
    assert codec.decode_method(codec.encode_method(value)) == value
    assert codec.decode_method(memoryview(codec.encode_method(value))) == value


@pytest.mark.parametrize(
    "method", [m for m in codec.METHODS.values() if m.name not in OURS_ONLY], ids=lambda m: m.name
)
def test_same_bytes_as_pamqp(method: type[methods.Method]) -> None:
    value = sample(method)
    raw = codec.method_frame(7, value)
    used, channel, theirs = pamqp.frame.unmarshal(raw)
    assert (used, channel) == (len(raw), 7)
    group, _, name = method.name.partition(".")
    expected = "".join(word.capitalize() for word in name.split("_"))
    assert theirs.name == f"{group.capitalize()}.{expected}"
    for field in method.__struct_fields__:
        if not field.startswith("reserved"):
            other = getattr(theirs, RENAMED.get(field, field))
            mine = getattr(value, field)
            assert other == (mine.decode() if isinstance(mine, bytes) else mine), field
    if method in (methods.ChannelOpen, methods.ChannelOpenOk):
        return  # it wants '0' where we, as RabbitMQ, have an empty string
    back = codec.decode_method(pamqp.frame.marshal(theirs, 7)[7:-1])
    assert without_reserved(back) == without_reserved(value)


def without_reserved(method: methods.Method) -> dict[str, object]:
    """pamqp has other constants there."""
    return {
        name: getattr(method, name)
        for name in method.__struct_fields__
        if not name.startswith("reserved")
    }


def test_bits_are_packed_and_reset_by_another_field() -> None:
    value = methods.ExchangeDeclare(exchange="x", durable=True, internal=True, no_wait=True)
    assert codec.encode_method(value)[-5] == 0b11010
    assert codec.decode_method(codec.encode_method(value)) == value


def test_unknown_method() -> None:
    with pytest.raises(NotImplementedHere, match=r"60\.200"):
        codec.decode_method(b"\x00\x3c\x00\xc8")


@pytest.mark.parametrize("method", list(codec.METHODS.values()), ids=lambda m: m.name)
def test_every_cut_and_every_surplus_is_refused(method: type[methods.Method]) -> None:
    raw = codec.encode_method(sample(method))
    for end in range(len(raw)):
        with pytest.raises(Refusal) as caught:
            codec.decode_method(raw[:end])
        assert caught.value.reply_code in (501, 502)
    with pytest.raises(SyntaxRefused, match="after its last field"):
        codec.decode_method(raw + b"\0")


TABLE = {
    "bool": True,
    "int": -5,
    "long": 1 << 40,
    "float": 2.5,
    "text": "häh",
    "none": None,
    "bytes": b"\xff\x00",
    "list": [1, "a", [False], {"x": None}],
    "table": {"y": {"z": 1}},
    "decimal": Decimal("12.34"),
    "time": fields.Timestamp(1_700_000_000),
}


def test_table_round_trip() -> None:
    raw = fields.table(TABLE)
    back = fields.FieldReader(raw).table()
    assert back == TABLE
    assert isinstance(back["time"], fields.Timestamp)
    _, theirs = pamqp.decode.field_table(raw)
    theirs["time"] = fields.Timestamp(theirs["time"].timestamp())
    assert theirs == {**TABLE, "bytes": TABLE["bytes"]}


@pytest.mark.parametrize(
    ("code", "payload", "value"),
    [
        ("b", b"\xff", -1),
        ("B", b"\xff", 255),
        ("s", b"\xff\xfe", -2),
        ("u", b"\xff\xfe", 65534),
        ("I", b"\xff\xff\xff\xfd", -3),
        ("i", b"\xff\xff\xff\xfd", (1 << 32) - 3),
        ("l", b"\xff" * 8, -1),
        ("L", b"\xff" * 8, -1),
        ("f", b"\x3f\x80\x00\x00", 1.0),
        ("d", b"\x3f\xf0" + bytes(6), 1.0),
        ("D", b"\x02\x00\x00\x00\x7b", Decimal("1.23")),
        ("T", bytes(7) + b"\x05", 5),
        ("V", b"", None),
        ("x", b"\x00\x00\x00\x01\xff", b"\xff"),
        ("S", b"\x00\x00\x00\x01a", "a"),
        ("S", b"\x00\x00\x00\x01\xff", b"\xff"),
        ("t", b"\x02", True),
    ],
)
def test_every_field_type(code: str, payload: bytes, value: object) -> None:
    raw = code.encode() + payload
    got = fields.FieldReader(raw).field()
    assert got == fields.Field(code, value)
    if code not in "t":
        assert fields.field(got) == raw


def test_depth_is_bounded() -> None:
    value: object = 1
    for _ in range(fields.DEPTH_MAX + 2):
        value = [value]
    with pytest.raises(SyntaxRefused, match="nested deeper than 64"):
        fields.FieldReader(fields.field(value)).field()


def test_a_length_past_the_end_is_refused() -> None:
    with pytest.raises(SyntaxRefused, match="4294967295 bytes has only 1 bytes left"):
        fields.FieldReader(b"\xff\xff\xff\xffa").table()


def test_unknown_field_type() -> None:
    with pytest.raises(SyntaxRefused, match="unknown field type 'q'"):
        fields.FieldReader(fields.long_string(b"\x01aq")).table()


def test_bad_utf8_in_a_short_string() -> None:
    with pytest.raises(FrameError, match="Malformed UTF-8"):
        codec.decode_method(
            codec.encode_method(methods.QueueDelete(queue="ab")).replace(b"ab", b"\xff\xff")
        )


def test_content_frames_are_cut_at_frame_max() -> None:
    parts = codec.content_frames(3, b"\0\0", b"x" * 10_000, 4096)
    assert [len(part) for part in parts] == [22, 4096, 4096, 10_000 - 2 * 4088 + 8]
    _, channel, header = pamqp.frame.unmarshal(parts[0])
    assert (channel, header.body_size) == (3, 10_000)
    assert codec.content_frames(3, b"\0\0", b"", 4096) == parts[:0] + [
        codec.frame(2, 3, codec._CONTENT.pack(60, 0, 0) + b"\0\0")
    ]


def test_timestamps_from_pamqp() -> None:
    when = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    raw = pamqp.encode.field_table({"t": when})
    assert fields.FieldReader(raw).table() == {"t": 1_577_836_800}


def test_entries_are_measured_as_they_are_decoded() -> None:
    values = {
        "flag": True,
        "number": 7,
        "real": 0.5,
        "text": "é",
        "bytes": b"\xff",
        "none": None,
        "decimal": Decimal("-0.5"),
        "when": fields.Timestamp(5),
        "list": [1, "a"],
        "table": {"inner": {"x": 1}},
    }
    table = fields.table(values)[4:]
    found = fields.entries(table)
    assert [name.decode() for name, _ in found] == list(values)
    assert b"".join(entry for _, entry in found) == table
    for end in range(1, len(table)):
        if end in (sum(len(entry) for _, entry in found[:n]) for n in range(len(found))):
            continue
        with pytest.raises(SyntaxRefused):
            fields.entries(table[:end])
    with pytest.raises(SyntaxRefused, match="unknown type 0x71"):
        fields.entries(b"\x01aq")
