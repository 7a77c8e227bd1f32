"""No message takes more Python function calls than this, where messages pass one by one."""

from __future__ import annotations

import pytest

from tests.instructions import turns
from warren_broker import kernel

CALLS_MAX = {"leader": 500, "follower": 158, "last": 60}
"""Calls per message; a little more than there are. Lower them when there are fewer."""


def test_a_message_takes_no_more_calls_than_before() -> None:
    if kernel.ACTIVE != "compiled":
        pytest.skip("the kernel is interpreted")
    found = turns.measure()
    for role, calls_max in CALLS_MAX.items():
        text = found.text(role)
        print(text)
        assert calls_max * 0.8 < found.per_message(role) <= calls_max, text
    assert found.turns[found.leader] / turns.MESSAGES < 3.3, "published, replicated, acknowledged"
    assert found.turns[found.follower] / turns.MESSAGES < 1.2, (
        "one append, its answer before it applies"
    )
    assert found.turns[found.last] / turns.MESSAGES < 0.1, "one append for many messages"
