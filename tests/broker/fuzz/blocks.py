"""Blocks that are almost right: valid ones with one field or a few changed, checksums repaired."""

from __future__ import annotations

import random
import struct
import zlib

from tests.wire.kernel import frames as f
from warren_wire.block.block import PRIORITY_MAX, compress, encode

WORDS = (0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_HEAD = struct.Struct("<4sBBBB6I")
_VALUES = (
    b"V",
    b"t\1",
    b"S\0\0\0\1x",
    b"S\0\0\0\1\xff",
    b"A\0\0\0\0",
    b"A\0\0\0\7S\0\0\0\2qq",
    b"F\0\0\0\0",
    b"D\xff\0\0\0\1",
    b"T" + b"\xff" * 8,
    b"d\x7f\xf0" + bytes(6),
    b"l\x80\0\0\0\0\0\0\0",
)
_NAMES = (b"CC", b"BCC", b"x-death", b"x-delivery-count", b"x", b"\xff", b"", b"n" * 255)


def property_bytes(chance: random.Random, tame: bool) -> bytes:
    """Of one message, with the fields that the broker itself reads; tame: none that is refused."""
    if tame:
        return f.properties(
            headers=chance.choice(
                (
                    None,
                    f.table((b"x-death", f.deaths(b"V", f.death(b"q")))),
                    f.table((b"CC", b"A\0\0\0\0")),
                    f.nested(63),
                )
            ),
            priority=chance.choice((None, 0, 9, 255)),
            expiration=chance.choice((None, None, b"0", b"2", b"4294967295")),
            message_id=chance.choice((None, b"id", b"\xff\xfe")),
        )
    kind = chance.random()
    if kind < 0.05:
        return chance.choice((b"", b"\0", b"\xff\xff", b"\x80\x00\x09x", b"\x00\x00\x00"))
    if kind < 0.1:
        return chance.randbytes(chance.randrange(30))
    values = [chance.choice(_VALUES) for _ in range(chance.randrange(4))]
    if chance.random() < 0.3:
        values.append(
            f.deaths(
                *(
                    chance.choice((f.death(b"q"), b"V", b"F\0\0\0\0"))
                    for _ in range(chance.randrange(3))
                )
            )
        )
    headers = f.table(*((chance.choice(_NAMES), value) for value in values))
    raw = f.properties(
        headers=chance.choice((None, headers, headers, f.nested(chance.choice((3, 63, 64, 65))))),
        priority=chance.choice((None, 0, 9, 255)),
        expiration=chance.choice((None, b"1", b"", b"soon", b"\xff", b"99999999999")),
        reply_to=chance.choice((None, b"amq.rabbitmq.reply-to", b"\xff")),
        user_id=chance.choice((None, b"guest", b"\xff")),
        message_id=chance.choice((None, b"id", b"\xff\xfe")),
    )
    return flipped(chance, raw) if chance.random() < 0.1 else raw


def valid(chance: random.Random) -> bytes:
    """A block that `decode` accepts."""
    tame = chance.random() < 0.6
    count = chance.randrange(1, 8)
    keys = [(b"", chance.choice((b"q", b"r", b"\xff", b""))) for _ in range(count)]
    return encode(
        [chance.randbytes(chance.choice((0, 1, 5, 90))) for _ in range(count)],
        [property_bytes(chance, tame) for _ in range(count)],
        keys,
        [chance.randrange(PRIORITY_MAX + 1) for _ in range(count)],
        [chance.choice((None, 0, 5, 0xFFFFFFFE)) for _ in range(count)],
    )


def flipped(chance: random.Random, data: bytes) -> bytes:
    """A few octets changed."""
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(changed))
        bit = changed[at] ^ 1 << chance.randrange(8)
        changed[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, bit))
    return bytes(changed)


def repaired(data: bytes) -> bytes:
    """With the checksum that its bytes have."""
    if len(data) < 32:
        return data
    return data[:12] + struct.pack("<I", zlib.crc32(data[32:])) + data[16:]


def mutated(chance: random.Random) -> bytes:
    """One block: changed field by field, or octet by octet, or cut, or not at all."""
    data = valid(chance)
    kind = chance.randrange(7)
    if kind == 0:
        return data
    if kind == 1:  # a number of the header
        fields = list(_HEAD.unpack_from(data))
        at = chance.randrange(1, len(fields))
        fields[at] = chance.choice(WORDS) & (0xFF if at < 5 else 0xFFFFFFFF)
        return _repaired_half(chance, _HEAD.pack(*fields) + data[32:])
    if kind == 2:  # a word of runs, offsets, routes or times
        at = 32 + 4 * chance.randrange(max(1, (len(data) - 32) // 4))
        word = struct.pack("<I", chance.choice(WORDS))
        return repaired((data[:at] + word + data[at + 4 :])[: len(data)])
    if kind == 3:
        return repaired(data[:32] + flipped(chance, data[32:]))
    if kind == 4:
        return _repaired_half(chance, flipped(chance, data))
    if kind == 5:
        cut = data[: chance.randrange(len(data))]
        return repaired(chance.choice((cut, data + cut)))
    large = encode([b"x" * 200] * 9, [property_bytes(chance, True) for _ in range(9)], (b"", b"q"))
    packed = compress(large, 512)
    return repaired(packed[:32] + flipped(chance, packed[32:]))


def _repaired_half(chance: random.Random, data: bytes) -> bytes:
    return repaired(data) if chance.random() < 0.8 else data
