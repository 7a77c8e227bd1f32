"""Frames survive any cutting; what is no frame is refused."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from warren_raft.messages import AnyRaftMessage, Append, AppendReply, EntryIs, SnapshotChunk, Vote
from warren_raft.runtime.net import codec
from warren_raft.types import EntryKind

MESSAGES: list[AnyRaftMessage] = [
    Vote(1, "a", "b", 3, 10, 2),
    Append(2, "a", "b", 3, 10, 2, 9, ()),
    Append(
        1 << 63,
        "a",
        "b",
        1 << 40,
        11,
        3,
        11,
        (
            (3, EntryKind.COMMAND, 1_700_000_000_000, b"x" * 100_000),
            (3, EntryKind.NOOP, 1_700_000_000_001, b""),
            (3, EntryKind.COMMAND, 1_700_000_000_002, b"tail"),
        ),
    ),
    AppendReply(1, "b", "a", 3, True, 11, 11),
]


def whole() -> bytes:
    return b"".join(codec.encode_raft(MESSAGES))


def test_data_is_carried_by_reference() -> None:
    data = MESSAGES[2].entries[0][3]  # type: ignore[union-attr]
    assert any(buffer is data for buffer in codec.encode_raft(MESSAGES))


@pytest.mark.parametrize("seed", range(20))
def test_frames_survive_any_cutting(seed: int) -> None:
    rng = random.Random(seed)
    stream = (whole() + codec.HEARTBEAT_FRAME + codec.frame(codec.MESSAGE, b"hello")) * 3
    got: list[tuple[int, object]] = []

    def take(kind: int, body: memoryview) -> None:
        got.append((kind, codec.decode_raft(body) if kind == codec.RAFT else bytes(body)))

    assembler = codec.Assembler(1 << 20)
    at = 0
    while at < len(stream):
        size = rng.choice([1, 2, 3, 5, 40, 1000, 65536, 150_000])
        assembler.feed(stream[at : at + size], take)
        at += size
    assert got == [(codec.RAFT, MESSAGES), (codec.HEARTBEAT, b""), (codec.MESSAGE, b"hello")] * 3


def appended(count: int, *sizes: int) -> list[AnyRaftMessage]:
    """Messages with entries of those sizes, each filled with its own octet."""
    entries = tuple(
        (3, EntryKind.COMMAND, at, bytes([count * 7 + at & 0xFF]) * size)
        for at, size in enumerate(sizes)
    )
    return [Append(2, "a", "b", 3, count, 2, 9, entries)]


@pytest.mark.parametrize("seed", range(20))
def test_large_frames_are_received_into_a_buffer_that_is_used_again(seed: int) -> None:
    rng = random.Random(seed)
    edge = codec.ROOM_BYTES_MIN
    sizes = [10, edge - 200, edge, 300_000, 300_000, 900_000, edge]
    sent = [appended(at, size, 5, size // 2) for at, size in enumerate(rng.sample(sizes, 7))]
    small = codec.frame(codec.MESSAGE, b"hello")
    stream = b"".join(b"".join(codec.encode_raft(each)) + small for each in sent)
    got: list[object] = []

    def take(kind: int, body: memoryview) -> None:
        got.append(codec.decode_raft(body) if kind == codec.RAFT else bytes(body))

    assembler = codec.Assembler(1 << 30)
    at = into = 0
    while at < len(stream):
        size = min(rng.choice([7, 9000, 65_536, 200_000]), len(stream) - at)
        room = assembler.room() if rng.random() < 0.8 else None
        if room is not None:
            size = min(size, len(room))
            room[:size] = stream[at : at + size]
            into += size
            assembler.filled(size, take)
        else:
            assembler.feed(stream[at : at + size], take)
        at += size
    expected: list[object] = []
    for each in sent:
        expected += [each, b"hello"]
    assert got == expected
    assert into > 200_000


def test_a_header_alone_allocates_no_more_than_the_buffer_may_have() -> None:
    for length in (codec.ROOM_BYTES_MAX, codec.ROOM_BYTES_MAX + 1, 200 << 20):
        assembler = codec.Assembler(256 << 20)
        tracemalloc.start()
        try:
            head = length.to_bytes(4, "little") + bytes([codec.RAFT])
            assembler.feed(head, lambda kind, body: None)
            assert tracemalloc.get_traced_memory()[1] < codec.ROOM_BYTES_MAX + 10_000
        finally:
            tracemalloc.stop()
        room = assembler.room()
        assert (None if room is None else len(room)) == (
            length if length <= codec.ROOM_BYTES_MAX else None
        )


def test_a_large_frame_on_a_new_connection_is_refused_as_any() -> None:
    assembler = codec.Assembler(codec.HANDSHAKE_FRAME_BYTES_MAX)
    head = (codec.HANDSHAKE_FRAME_BYTES_MAX + 1).to_bytes(4, "little") + bytes([codec.RAFT])
    with pytest.raises(codec.BadFrame):
        assembler.feed(head, lambda kind, body: None)


def test_a_frame_above_the_bound_is_refused_by_its_length_alone() -> None:
    assembler = codec.Assembler(1000)
    with pytest.raises(codec.BadFrame, match="1001 bytes, at most 1000"):
        assembler.feed(codec.frame(codec.MESSAGE, bytes(1001))[:5], lambda kind, body: None)


NEGATIVE: tuple[AnyRaftMessage, ...] = (
    Append(1, "a", "b", -1, 4, 2, 4),
    Append(1, "a", "b", 3, -4, 2, 4),
    Append(1, "a", "b", 3, 4, 2, 4, ((3, EntryKind.COMMAND, -5, b"data"),)),
    Append(1, "a", "b", 3, 4, 2, 4, ((1 << 63, EntryKind.COMMAND, 5, b"data"),)),
    AppendReply(1, "a", "b", 3, True, -1, 4),
    Vote(-1, "a", "b", 3, 4, 2),
    SnapshotChunk(1, "a", "b", 3, 1 << 63, 2, 0, (), -1, b"", 5),
    SnapshotChunk(1, "a", "b", 3, 9, 2, 0, ((1, 1, EntryKind.COMMAND, -1, b"x"),), -1, b"", 5),
    EntryIs(1, "a", "b", 3, 9, 2, EntryKind.COMMAND, -7, b"x"),
)


@pytest.mark.parametrize("message", NEGATIVE)
def test_a_number_that_no_log_has_is_refused(message: AnyRaftMessage) -> None:
    """It reached the log, which could not write it: the node ended."""
    frame = b"".join(codec.encode_raft([message]))[codec.FRAME_HEADER_BYTES :]
    with pytest.raises(codec.BadFrame):
        codec.decode_raft(memoryview(frame))


def test_no_cut_or_flip_of_a_raft_frame_gets_further_than_a_refusal() -> None:
    body = whole()[codec.FRAME_HEADER_BYTES :]
    header = body[: len(body) - 100_004]
    for cut in (*range(len(header)), len(body) - 1):
        with pytest.raises(codec.BadFrame):
            codec.decode_raft(memoryview(body[:cut]))
    with pytest.raises(codec.BadFrame):
        codec.decode_raft(memoryview(body + b"\0"))
    rng = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(body)
        damaged[rng.randrange(len(header))] ^= 1 << rng.randrange(8)
        try:
            codec.decode_raft(memoryview(damaged))
        except codec.BadFrame:
            pass  # any other exception fails the test
