"""No unit of work takes 3 % more instructions than its record, or less without a new record."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.instructions import measure
from warren_wire import kernel

pytestmark = pytest.mark.slow


def test_a_difference_of_more_than_the_tolerance_is_told() -> None:
    before = {"a": 100.0, "b": 100.0, "c": 100.0}
    told = measure.differences({"a": 103.5, "b": 102.0, "c": 96.0, "d": 5.0}, before)
    assert [line.split(":")[0] for line in told] == ["a", "c", "d"]


def test_the_instructions_are_those_on_record() -> None:
    if shutil.which("valgrind") is None:
        assert "WARREN_STRICT" not in os.environ, "no valgrind: apt-get install valgrind"
        pytest.skip("no valgrind: apt-get install valgrind")
    if kernel.ACTIVE != "compiled":
        pytest.skip("the kernel is interpreted")
    before = measure.recorded().get(measure.combination())
    if before is None:
        pytest.skip(f"no instructions on record for {measure.combination()}")
    found = measure.differences(measure.count(), before)
    remedy = "if that is meant: python3 build.py instructions --record"
    assert not found, "\n".join([*found, remedy])
