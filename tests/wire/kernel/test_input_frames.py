"""Input cut so that few events are made at once, wherever its pieces begin."""

from __future__ import annotations

import struct
from random import Random

import pytest

from warren_wire.kernel import Kernel

EACH = 100
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
def test_no_piece_has_more_frames_than_may_be(both: Kernel, seed: int) -> None:
    chance = Random(seed)
    ends, data = [], b"AMQP\0\1\0\0"
    for _ in range(60):
        one = drawn(chance)
        data += one
        if one[4:5] != b"\2" or one[8:11] != TRANSFER:
            ends.append(len(data))
    cut, done = both.link_runs.InputFrames(), 0
    while done < len(data):
        read = memoryview(data)[done : done + chance.choice((1, 2, 7, 30, 500))]
        while read:
            size = cut.piece(read, 2 * EACH, EACH)
            assert 0 < size <= len(read)
            whole = [end for end in ends if done < end <= done + size]
            assert len(whole) <= 3, "two, and one that had begun before"
            done += size
            read = read[size:]


def test_transfers_alone_are_one_piece(both: Kernel) -> None:
    data = b"AMQP\0\1\0\0" + frame(TRANSFER + bytes(100)) * 50
    assert both.link_runs.InputFrames().piece(memoryview(data), 1, EACH) == len(data)


@pytest.mark.parametrize("seed", range(50))
def test_any_bytes_are_cut_to_their_end(both: Kernel, seed: int) -> None:
    chance = Random(seed)
    cut = both.link_runs.InputFrames()
    for _ in range(50):
        sizes = struct.pack(">I", chance.randrange(16)) * chance.randrange(9)
        read = memoryview(sizes + chance.randbytes(chance.randrange(9)))
        while read:
            size = cut.piece(read, chance.randrange(1, 5 * EACH), EACH)
            assert 0 < size <= len(read)
            read = read[size:]


def uint(number: int) -> bytes:
    """A uint in its shortest form."""
    if not number:
        return b"\x43"
    return bytes((0x52, number)) if number < 256 else b"\x70" + struct.pack(">I", number)


def disposition(first: int, last: bytes, *, wide: bool = False) -> bytes:
    fields = b"\x41" + uint(first) + last + b"\x41" + b"\x00\x53\x24\x45"
    if wide:
        return frame(OTHER + b"\xd0" + struct.pack(">II", len(fields) + 4, 5) + fields)
    return frame(OTHER + b"\xc0" + bytes((len(fields) + 1, 5)) + fields)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("first", "last", "events"),
    [
        (0, b"\x40", 1),
        (7, uint(7), 1),
        (300, uint(309), 10),
        (0, uint(99), 100),
        (0, uint(100), EACH),
        (0xFFFFFFFF, uint(0), EACH),  # they wrap
        (3, b"\x53\x04", EACH),  # a ulong
    ],
)
def test_a_disposition_makes_one_event_of_each(
    both: Kernel, first: int, last: bytes, events: int, wide: bool
) -> None:
    """Before: each was counted as one of all deliveries, and few were taken at once."""
    one = disposition(first, last, wide=wide)
    data = memoryview(one * 20)
    for most in (1, 9, 10, 11, 99, 100, 101, 1_000):
        cut = both.link_runs.InputFrames()
        assert cut.piece(memoryview(b"AMQP\0\1\0\0"), 1, EACH) == 8
        taken = max(1, min(20, most // events))
        assert cut.piece(data, most, EACH) == taken * len(one)


def test_a_disposition_of_which_a_part_is_there_names_any(both: Kernel) -> None:
    one = disposition(300, uint(300))
    for there in range(11, len(one)):
        cut = both.link_runs.InputFrames()
        cut.piece(memoryview(b"AMQP\0\1\0\0"), 1, EACH)
        size = cut.piece(memoryview(one + one[:there]), EACH, EACH)
        assert size in (len(one), len(one) + there)
        assert size == len(one) or there > 18, "where its last delivery is told"
