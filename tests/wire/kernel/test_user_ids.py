"""The user_id of each message of a run: the kernel's reading against decoded properties."""

from __future__ import annotations

import random

import pytest

from warren_wire.amqp091 import properties
from warren_wire.kernel import USER_ID, Kernel, MessageTable, Route

SOME = {
    "content_type": "text/plain",
    "content_encoding": "x",
    "headers": {"a": 1, "user_id": "no"},
    "delivery_mode": 2,
    "priority": 4,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "10",
    "message_id": "m",
    "timestamp": 5,
    "type": "t",
    "app_id": "a",
    "cluster_id": "k",
}
USERS = (None, "guest", "other", "", "gues", "guestx")


def grown(chance: random.Random, count: int) -> tuple[MessageTable, list[str | None]]:
    """Messages with some properties each, and their user ids."""
    table, users = MessageTable(), []
    for _ in range(count):
        user = chance.choice(USERS[:2]) if chance.random() < 0.8 else chance.choice(USERS)
        given = {name: value for name, value in SOME.items() if chance.random() < 0.5}
        raw = properties.encode(properties.Properties(**given, user_id=user))
        if chance.random() < 0.3 and table.count:
            raw, user = table.properties_of(table.count - 1), users[-1]
        flags = (USER_ID if user is not None else 0) | chance.choice((0, 1, 2))
        table.append(Route(b"", b"q", False), raw, b"b" * chance.randrange(3), 4, 10, flags)
        users.append(user)
    return table, users


@pytest.mark.parametrize("seed", range(80))
def test_the_first_message_of_somebody_else(both: Kernel, seed: int) -> None:
    chance = random.Random(seed)
    table, users = grown(chance, chance.randrange(1, 12))
    first = chance.randrange(table.count + 1)
    last = chance.randrange(first, table.count + 1)
    others = [i for i in range(first, last) if users[i] not in (None, "guest")]
    expected = others[0] if others else last
    assert both.assemble.first_other_user(table, first, last, b"guest") == expected
    flags = 0
    for i in range(first, last):
        flags |= table.flags(i)
    assert both.assemble.flags_of(table, first, last) == flags
