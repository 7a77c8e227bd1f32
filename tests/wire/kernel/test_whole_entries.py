"""Maps that are read whole, on both kernels: every value in them is checked."""

from __future__ import annotations

import random
import struct
import time

import pytest

from tests.wire.kernel.test_hostile_values import WITHOUT_BYTES, array
from warren_wire.kernel import Kernel
from warren_wire.kernel.section_types import MalformedSections
from warren_wire.kernel.section_values import WITHOUT_BYTES_MAX

KEY = b"\xa3\x03x-a"


def mapped(*entries: bytes) -> bytes:
    """A map of keys and values."""
    content = b"".join(entries)
    return b"\xd1" + struct.pack(">II", len(content) + 4, len(entries)) + content


def listed(*values: bytes) -> bytes:
    """A list."""
    content = b"".join(values)
    return b"\xd0" + struct.pack(">II", len(content) + 4, len(values)) + content


VALUES = (
    b"\x40",
    b"\x56\x01",
    b"\x83" + bytes(8),
    b"\xa1\x01a",
    listed(b"\x41", listed(), b"\x45", b"\x00\xa3\x01d\x54\x01"),
    mapped(b"\xa1\x01k", mapped(), b"\x45", b"\x41"),
    array(2, 0x71, bytes(8)),
    array(2, 0xC0, b"\x02\x01\x40\x01\x00"),
    array(1, 0x00, b"\xa3\x01d\xa1\x01x"),
    b"\x00\x53\x07\x00\x44\x45",
)


def entries(kernel: Kernel, data: bytes) -> list[tuple[int, bytes, bytes]]:
    """What a kernel reads of a map."""
    found: list[tuple[int, bytes, bytes]] = kernel.sections_in.whole_entries(memoryview(data))
    return found


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_a_value_is_returned_as_it_is(both: Kernel, value: bytes) -> None:
    assert entries(both, mapped(KEY, value, b"\x53\x05", b"\x40")) == [
        (0xA3, b"x-a", value),
        (0x53, b"\x05", b"\x40"),
    ]


@pytest.mark.parametrize(
    "value, text",
    [
        (b"\xa1\x05a", "ends at byte"),
        (b"\x77", "unknown constructor"),
        (listed(b"\x40") + b"\x40", "values end at byte"),
        (b"\xc0\x03\x01\x40\x40", "values end at byte"),
        (b"\xc1\x02\x01\x40", "one has no value"),
        (b"\xe0\x01\x00", "has no constructor"),
        (array(2, 0xA1, b"\x01a"), "has no size"),
        (b"\x00\xa1\x01d\x40", "neither a ulong nor a symbol"),
        (b"\x00\x00\x53\x01\x40\x40", "neither a ulong nor a symbol"),
        (array(1, 0x00, b"\x53\x01\x00\x53\x01\x40"), "two descriptors"),
        (b"\x45" + b"\xc0\x03\x01\xc0\x00", "values end"),
        (listed(b"\xc0\x03\x02\x40"), "ends at byte|missing"),
    ],
)
def test_a_value_that_is_malformed_anywhere_is_refused(
    both: Kernel, value: bytes, text: str
) -> None:
    with pytest.raises(MalformedSections, match=text):
        entries(both, mapped(KEY, value))


@pytest.mark.parametrize("data", [b"\x45", b"\x40", b"\xa1\x00", mapped() + b"\x40", b"\xd1"])
def test_what_is_no_map_or_more_is_refused(both: Kernel, data: bytes) -> None:
    with pytest.raises(MalformedSections):
        entries(both, data)


@pytest.mark.parametrize("kind", WITHOUT_BYTES)
def test_values_without_bytes_are_bounded(both: Kernel, kind: int) -> None:
    began = time.process_time()
    half = array(WITHOUT_BYTES_MAX // 2, kind)
    entries(both, mapped(KEY, half, KEY, half))
    for value in (array(2**32 - 1, kind), array(WITHOUT_BYTES_MAX + 1, kind)):
        with pytest.raises(MalformedSections, match="the limit is 65536"):
            entries(both, mapped(KEY, value))
    assert time.process_time() - began < 2


def test_damaged_maps_are_read_alike(pair: tuple[Kernel, Kernel]) -> None:
    rng = random.Random(5)
    whole = mapped(*(each for value in VALUES for each in (KEY, value)))
    for _ in range(20_000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(b"\x00\x40\x45\x53\xa3\xc0\xd0\xe0\xff\x01")
        del data[rng.randrange(len(data)) + 1 if rng.random() < 0.2 else len(data) :]
        found = []
        for kernel in pair:
            try:
                found.append(repr(entries(kernel, bytes(data))))
            except MalformedSections as error:
                found.append(str(error))
        assert found[0] == found[1], bytes(data).hex()
