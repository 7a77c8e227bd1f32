"""Input cut so that few frames are processed at once, wherever its pieces begin."""

from __future__ import annotations

import struct
from random import Random

import pytest

from warren_wire.amqp10.engine import InputFrames

TRANSFER, OTHER = b"\x00\x53\x14", b"\x00\x53\x15"


def frame(body: bytes, words: int = 2) -> bytes:
    return struct.pack(">IBBH", 8 + len(body), words, 0, 0) + body


def drawn(chance: Random) -> bytes:
    """A transfer, another frame, an empty one, or one that looks like a transfer."""
    long = bytes(chance.randrange(60))
    if chance.random() < 0.1:
        return b"AMQP\0\1\0\0"
    bodies = [TRANSFER + long, OTHER + long, b"", TRANSFER + b"\0" + OTHER + long]
    at = chance.randrange(len(bodies))
    return frame(bodies[at], words=3 if at == 3 else 2)


@pytest.mark.parametrize("seed", range(50))
def test_no_piece_has_more_frames_than_may_be(seed: int) -> None:
    chance = Random(seed)
    ends, data = [], b"AMQP\0\1\0\0"
    for _ in range(60):
        one = drawn(chance)
        data += one
        if one[4:5] != b"\2" or one[8:11] != TRANSFER:
            ends.append(len(data))
    cut, done = InputFrames(), 0
    while done < len(data):
        read = memoryview(data)[done : done + chance.choice((1, 2, 7, 30, 500))]
        while read:
            size = cut.piece(read, 2)
            assert 0 < size <= len(read)
            whole = [end for end in ends if done < end <= done + size]
            assert len(whole) <= 3, "two, and one that had begun before"
            done += size
            read = read[size:]


def test_transfers_alone_are_one_piece() -> None:
    data = b"AMQP\0\1\0\0" + frame(TRANSFER + bytes(100)) * 50
    assert InputFrames().piece(memoryview(data), 1) == len(data)


@pytest.mark.parametrize("seed", range(50))
def test_any_bytes_are_cut_to_their_end(seed: int) -> None:
    chance = Random(seed)
    cut = InputFrames()
    for _ in range(50):
        sizes = struct.pack(">I", chance.randrange(16)) * chance.randrange(9)
        read = memoryview(sizes + chance.randbytes(chance.randrange(9)))
        while read:
            size = cut.piece(read, chance.randrange(1, 5))
            assert 0 < size <= len(read)
            read = read[size:]
