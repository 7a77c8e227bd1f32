"""`Any` turns the type checker off: it becomes rarer."""

from __future__ import annotations

import re

from tidy import house
from tidy.ratchet import ANY_PER_1000_LINES


def test_any_becomes_rarer() -> None:
    lines = [line for module in house.sources() for line in module.lines]
    found = sum(len(re.findall(r"\bAny\b", line)) for line in lines) * 1_000 / len(lines)
    remedy = "`object` for what is looked at before it is used, a TypeVar for what is passed on"
    assert found <= ANY_PER_1000_LINES, f"{found:.2f} `Any` per 1,000 lines; {remedy}"
