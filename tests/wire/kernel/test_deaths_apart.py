"""The header x-death of published messages: the order of the kernel against the codec's."""

from __future__ import annotations

import random

from tests.broker.fuzz import blocks
from tests.wire.kernel import frames as f
from warren_wire.amqp091 import fields, properties
from warren_wire.block.block import Block, encode
from warren_wire.kernel import HAS_DEATHS, Kernel, MessageTable, Route
from warren_wire.kernel.properties import SECTIONS, examine

ROUTES = (Route(b"", b"q", False), Route(b"x", b"k", True))
DEATHS = f.deaths(f.death(b"q"), f.death(b"r", b"rejected", b"more"))
NAMES = (b"x-death", b"x-death", b"x-deatH", b"CC", b"", b"n" * 255, SECTIONS.encode())
VALUES = (
    DEATHS,
    b"V",
    b"t\1",
    b"S\0\0\0\1\xff",
    b"x\0\0\0\7x-death",
    b"F" + f.table((b"x-death", DEATHS), (b"a", b"V")),
    b"A\0\0\0\0",
)


def headed(chance: random.Random) -> bytes:
    """Properties with some headers, the same ones more than once among them."""
    given = [(chance.choice(NAMES), chance.choice(VALUES)) for _ in range(chance.randrange(7))]
    raw = f.properties(
        headers=f.table(*given),
        priority=chance.choice((None, 0, 4, 255)),
        message_id=chance.choice((None, b"x-death", b"")),
    )
    if chance.random() < 0.5:
        return raw
    return (
        bytes((raw[0] | 0xC0, raw[1])) + f.short(b"t" * chance.choice((0, 255))) + b"\1e" + raw[2:]
    )


def sorted_by_the_codec(raw: bytes) -> bytes:
    """The headers decoded one by one, x-death behind the others."""
    start, end = properties.spans(raw)["headers"]
    found = fields.entries(raw[start + 4 : end])
    found.sort(key=lambda entry: entry[0] == b"x-death")
    return raw[: start + 4] + b"".join([entry for _, entry in found]) + raw[end:]


def grown(chance: random.Random) -> MessageTable:
    """Messages as the scanner and `load_block` leave them."""
    table, count = MessageTable(), chance.randrange(1, 7)
    while table.count < count:
        raw = headed(chance) if chance.random() < 0.7 else blocks.property_bytes(chance, False)
        found = examine(raw)
        if found >= 0:
            table.append(
                chance.choice(ROUTES),
                raw,
                b"b" * chance.randrange(3),
                found >> 32 & 31,
                found & 0xFFFFFFFF,
                found >> 40,
            )
    return table


def test_the_headers_are_in_the_order_that_the_codec_gives_them(both: Kernel) -> None:
    changed = 0
    for seed in range(600):
        chance = random.Random(seed)
        table = grown(chance)
        first = chance.randrange(table.count + 1)
        last = chance.randrange(first, table.count + 1)
        before = [table.properties_of(i) for i in range(table.count)]
        rows, bodies = bytes(table.rows), bytes(table.bodies)
        expected = [
            sorted_by_the_codec(raw) if first <= i < last and table.flags(i) & HAS_DEATHS else raw
            for i, raw in enumerate(before)
        ]
        for _ in range(2):  # what was set apart stays so
            both.admit.set_deaths_apart(table, first, last)
            assert [table.properties_of(i) for i in range(table.count)] == expected, seed
            assert (bytes(table.rows), bytes(table.bodies)) == (rows, bodies), (
                "nothing else changes"
            )
        changed += expected != before
    assert changed > 100, "or the test tests nothing"


def test_messages_of_a_block_keep_their_bodies_where_they_are(both: Kernel) -> None:
    """They are a view of the block: the headers change in the table alone."""
    raw = f.properties(headers=f.table((b"x-death", DEATHS), (b"a", b"V")))
    given = encode([b"one", b"two", b"three"], [f.PLAIN, raw, f.PLAIN], (b"", b"q"))
    table = both.admit.load_block(Block.decode(given))
    bodies = table.bodies
    both.admit.set_deaths_apart(table, 0, table.count)
    assert table.bodies is bodies
    assert [table.properties_of(i) for i in range(3)] == [
        f.PLAIN,
        sorted_by_the_codec(raw),
        f.PLAIN,
    ]
    assert raw in given, "the block is not written to"
