"""The header `traceparent` in encoded properties: which forms are a sampled context."""

from __future__ import annotations

import pytest

from tests.wire.kernel import frames
from warren_wire.amqp091 import properties
from warren_wire.amqp10.message.received import read_message
from warren_wire.trace_context import TRACE_HEADER, TraceContext, has_context, next_sampled

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
VALUE = f"00-{TRACE}-{SPAN}-01"
CONTEXT = TraceContext(bytes.fromhex(TRACE), bytes.fromhex(SPAN))


def written(value: object, **more: object) -> bytes:
    """Properties with that header."""
    return properties.encode(properties.Properties(headers={"a": 1, TRACE_HEADER: value, **more}))


def found(raw: bytes) -> TraceContext | None:
    here = next_sampled(raw, 0, len(raw))
    return here and here[1]


@pytest.mark.parametrize("value", [VALUE, f"00-{TRACE}-{SPAN}-03", f"cc-{TRACE}-{SPAN}-ff"])
def test_a_sampled_context_is_found(value: str) -> None:
    assert found(written(value)) == CONTEXT
    assert CONTEXT.header() == VALUE


@pytest.mark.parametrize(
    "value",
    [
        f"00-{TRACE}-{SPAN}-00",
        f"00-{TRACE}-{SPAN}-02",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0",
        f"00-{TRACE}-{SPAN}-01-x",
        f"00_{TRACE}_{SPAN}_01",
        "",
        7,
        ["00"],
        {"a": VALUE},
    ],
)
def test_what_is_malformed_or_not_sampled_is_no_context(value: object) -> None:
    assert found(written(value)) is None
    assert has_context(written(value)), "its publisher has decided"


def test_another_header_is_no_context() -> None:
    assert found(written(1, xtraceparent=VALUE, traceparents=VALUE)) is None
    assert not has_context(properties.encode(properties.Properties(headers={"trace": VALUE})))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("section", [0x72, 0x74], ids=["annotations", "properties"])
def test_a_context_over_amqp10_is_found(section: int, wide: bool) -> None:
    text = VALUE.encode()
    name = (b"\xa3" if section == 0x72 else b"\xa1") + b"\x0b" + TRACE_HEADER.encode()
    value = (b"\xb1\0\0\0\x37" if wide else b"\xa1\x37") + text
    pairs = name + value
    fields = b"\xc1" + bytes((len(pairs) + 1, 2)) + pairs
    data = b"\0\x53" + bytes((section,)) + fields + b"\0\x53\x75\xa0\x01x"
    assert found(read_message(memoryview(data)).properties) == CONTEXT
    assert found(data) == CONTEXT, "as sections, too"


def test_only_a_part_of_an_area_is_searched() -> None:
    one = written(VALUE)
    area = bytearray(one * 3)
    here = next_sampled(area, len(one), len(area))
    assert here is not None and len(one) < here[0] < 2 * len(one)
    assert next_sampled(area, 2 * len(one), len(area) - 1) is None
    assert next_sampled(memoryview(area), 0, len(area)) is not None
    area += b"x"  # no view of it is held


def test_frames_have_it_as_properties_do() -> None:
    raw = frames.properties(
        headers=frames.table((TRACE_HEADER.encode(), b"S\0\0\0\x37" + VALUE.encode()))
    )
    assert found(raw) == CONTEXT
