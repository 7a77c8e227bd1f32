"""The broker's own header, of AMQP 1.0 sections, among headers of publishers that imitate it."""

from __future__ import annotations

from random import Random

from tests.wire.kernel import frames as f
from warren_wire.amqp091 import properties
from warren_wire.block.block import Block, encode
from warren_wire.kernel import Kernel
from warren_wire.kernel.properties import SECTIONS

FRAME_MAX = 1 << 17
NAME = SECTIONS.encode()
FOREIGN = (
    b"\x26\x00"
    + bytes(4)  # no headers; then a correlation_id, then a reply_to of "x" (120) bytes
    + f.short(NAME)
    + f.short(b"\xff" * 4 + b"r" * 116)
)
"""Properties in which the header's bytes stand behind the table of headers."""


def block_of(*lists: bytes) -> Block:
    """A block of messages with these properties."""
    return Block.decode(encode([b"body"] * len(lists), list(lists), (b"", b"q"), 4, None))


def test_an_id_and_an_address_are_not_taken_for_the_header(both: Kernel) -> None:
    """One such message stopped the consumers of its queue: sizes below zero."""
    deliver = both.deliver
    assert deliver.examine(FOREIGN) >= 0
    assert deliver.split_sections(FOREIGN) == (FOREIGN, b"")
    block = block_of(FOREIGN, f.PLAIN)
    out = bytearray()
    assert deliver.format_deliveries(out, block, 0, 1, 1, "c", 1, False, FRAME_MAX) == ()
    assert FOREIGN in out
    assert deliver.format_get_ok(bytearray(), block, 0, 1, 1, False, 0, FRAME_MAX) == ()


def test_the_header_behind_a_foreign_one_is_found(both: Kernel) -> None:
    kept = both.deliver.with_sections(FOREIGN, b"kept")
    without = b"\x06\x00" + FOREIGN[6:]  # a table of no other headers leaves with the header
    assert both.deliver.split_sections(kept) == (without, b"kept")


def table_of(rng: Random) -> bytes:
    """A table of headers, some of which are named like the broker's own."""
    names = (NAME, NAME[:-1], NAME + b"x", b"a", b"")
    kinds = (b"V", b"t\x01", b"x" + f.table()[:4], b"S\x00\x00\x00\x02ab", b"x\x00\x00\x00\x03abc")
    return f.table(*((rng.choice(names), rng.choice(kinds)) for _ in range(rng.randrange(3))))


def list_of(rng: Random) -> bytes:
    """A well-formed property list, mostly of texts that look like the header."""
    texts = (NAME, b"\xff" * 4 + b"r" * 116, b"x\xff\xff\xff\xff", b"", bytes(120))
    flags, parts = 0, []
    for bit in (0x8000, 0x4000, 0x2000, 0x1000, 0x0400, 0x0200, 0x0080):
        if rng.random() < 0.6:
            flags |= bit
            plain = b"\x02" if bit == 0x1000 else f.short(rng.choice(texts))
            parts.append(table_of(rng) if bit == 0x2000 else plain)
    return flags.to_bytes(2, "big") + b"".join(parts)


def test_any_list_is_divided_and_joined_alike(pair: tuple[Kernel, Kernel]) -> None:
    rng, found = Random(31), 0
    for _ in range(3000):
        raw, kept = list_of(rng), rng.randbytes(rng.randrange(5))
        assert pair[0].deliver.examine(raw) >= 0, raw
        own, sections = pair[0].deliver.split_sections(raw)
        assert (own, sections) == pair[1].deliver.split_sections(raw), raw
        entries = properties.select(raw, frozenset({"headers"})).get("headers", [])
        held = bool(entries) and entries[0][0] == SECTIONS and entries[0][1].code == "x"
        found += held
        assert (own != raw) is held, raw
        assert pair[0].deliver.examine(own) >= 0, raw
        for kernel in pair:
            joined = kernel.deliver.with_sections(raw, kept)
            assert kernel.deliver.examine(joined) >= 0
            assert kernel.deliver.split_sections(joined)[1] == kept
            again = kernel.deliver.split_sections(joined)[0]
            assert kernel.deliver.examine(again) >= 0
            assert again == raw or not entries
    assert found > 50
