"""Values of AMQP 1.0 messages that cost more than their bytes."""

from __future__ import annotations

import struct
import time

import pytest

from warren_wire.kernel import Kernel
from warren_wire.kernel.section_types import MalformedSections
from warren_wire.kernel.section_values import WITHOUT_BYTES_MAX

BODY = b"\x00\x53\x75\xa0\x01b"
WITHOUT_BYTES = (0x40, 0x41, 0x42, 0x43, 0x44, 0x45)
"""null, true, false, uint 0, ulong 0, the empty list."""


def array(count: int, kind: int, content: bytes = b"") -> bytes:
    """An array with a count of four bytes."""
    return struct.pack(">BIIB", 0xF0, 5 + len(content), count, kind) + content


def annotated(*values: bytes) -> bytes:
    """A message with these annotations."""
    content = b"".join(b"\xa3\x04x-%02d" % at + value for at, value in enumerate(values))
    head = struct.pack(">BII", 0xD1, len(content) + 4, 2 * len(values))
    return b"\x00\x53\x72" + head + content + BODY


def refused(kernel: Kernel, data: bytes) -> str:
    """Why a message is refused, in less than a second."""
    began = time.process_time()
    with pytest.raises(MalformedSections) as caught:
        kernel.sections_in.read_sections(memoryview(data))
    assert time.process_time() - began < 1
    return str(caught.value)


@pytest.mark.parametrize("kind", WITHOUT_BYTES)
def test_values_without_bytes_are_bounded_in_a_message(both: Kernel, kind: int) -> None:
    limit = WITHOUT_BYTES_MAX
    assert "the limit is 65536" in refused(both, annotated(array(2**32 - 1, kind)))
    assert "the limit is 65536" in refused(both, annotated(array(limit + 1, kind)))
    half = array(limit // 2, kind)
    both.sections_in.read_sections(memoryview(annotated(half, half)))
    assert "the limit is 65536" in refused(both, annotated(half, half, array(1, kind)))


@pytest.mark.parametrize("kind", WITHOUT_BYTES)
def test_small_arrays_in_an_array_are_bounded_together(both: Kernel, kind: int) -> None:
    """Each of three bytes says that it has 255 values: 16 MiB would become 12 GiB of fields."""
    small = array(1000, 0xE0, bytes((2, 255, kind)) * 1000)
    assert "the limit is 65536" in refused(both, annotated(small))
    large = array(1000, 0xF0, struct.pack(">IIB", 5, 60_000, kind) * 1000)
    assert "the limit is 65536" in refused(both, annotated(large))
