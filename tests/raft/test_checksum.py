"""The checksum of what is on disk and between nodes does not depend on the library that sums."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from warren_wire import checksum

STARTS = st.integers(0, 0xFFFFFFFF)


@given(st.binary(max_size=300), STARTS)
def test_the_values_are_those_of_zlib(data: bytes, start: int) -> None:
    assert checksum.crc32(data) == zlib.crc32(data)
    for same in (data, bytearray(data), memoryview(data)):
        assert checksum.crc32(same, start) == zlib.crc32(data, start)


@given(st.integers(0, 70_000), st.integers(0, 64), STARTS)
def test_long_data_at_any_alignment_gives_the_same_values(size: int, at: int, start: int) -> None:
    data = memoryview(bytes(range(251)) * 281)[at : at + size]
    assert checksum.crc32(data, start) == zlib.crc32(data, start)


@given(st.binary(max_size=200), st.binary(max_size=200), STARTS)
def test_a_sum_continues(first: bytes, second: bytes, start: int) -> None:
    assert checksum.crc32(second, checksum.crc32(first, start)) == zlib.crc32(first + second, start)


def test_without_the_wheel_zlib_sums() -> None:
    script = (
        "import sys; sys.modules['zlib_ng'] = None\n"
        "import zlib; from warren_wire import checksum\n"
        "assert checksum.crc32 is zlib.crc32"
    )
    place = Path(checksum.__file__).parent.parent
    subprocess.run([sys.executable, "-c", script], check=True, cwd=place)


def test_this_environment_has_the_wheel() -> None:
    """It is in requirements.txt; the other tests would compare zlib with itself."""
    assert checksum.crc32 is not zlib.crc32
