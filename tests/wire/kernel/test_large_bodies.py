"""Bodies of which a frame arrives in pieces: one buffer takes them as they come."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from typing import Any

import pytest

from tests.wire.kernel import frames as f
from tests.wire.kernel.test_scan import rows
from warren_wire.kernel import ContentRefused, Kernel, Malformed, MethodItem, PublishRun
from warren_wire.kernel.frame_rest import FILL_BYTES_MIN, JOIN_BYTES_MAX

FRAME_MAX = 131_072


def body(size: int) -> bytes:
    return (b"\xce\x00\x01body%d." % size * (size // 8 + 1))[:size]


def messages(scanner: Any, pieces: list[bytes]) -> list[tuple[int, Any]]:
    """Return (channel, row) of every message; the table is taken after each feed."""
    found = []
    for piece in pieces:
        for item in scanner.feed(piece):
            assert isinstance(item, PublishRun), item
            table = rows(scanner.table)
            found += [(item.channel, table[i]) for i in range(item.first, item.last)]
        scanner.take_table()
    return found


def cut(data: bytes, *edges: int) -> list[bytes]:
    return [data[a:b] for a, b in itertools.pairwise([0, *edges, len(data)])]


@pytest.mark.parametrize("size", [JOIN_BYTES_MAX * 3, 100])
def test_a_large_message_cut_anywhere_arrives_whole(both: Kernel, size: int) -> None:
    large, small = body(50_000), f.publish(1, b"x", b"k", b"small")
    data = small + f.publish(1, b"", b"q", large, piece=20_000) + small
    chance = random.Random(size)
    near = [len(small) + 20_000 * k + d for k in range(3) for d in range(-12, 60)]
    for at in (*near, *(chance.randrange(len(data)) for _ in range(100))):
        scanner = both.scan.FrameScanner(FRAME_MAX)
        pieces = [data[:at], *(data[a : a + size] for a in range(at, len(data), size))]
        found = messages(scanner, pieces)
        assert [row[2] for _, row in found] == [b"small", large, b"small"], at
        assert scanner.pending_bytes == 0


@pytest.mark.parametrize("seed", range(20))
def test_interleaved_channels_and_any_cuts(both: Kernel, seed: int) -> None:
    chance = random.Random(seed)
    queues: list[list[bytes]] = []
    sent: dict[int, list[bytes]] = {}
    for channel in (1, 2, 3):
        frames: list[bytes] = []
        for _ in range(4):
            size = chance.choice([0, 10, 4096, 30_000, 150_000])
            sent.setdefault(channel, []).append(body(size))
            frames.append(f.publish_method(channel, b"", b"q"))
            frames.append(f.header(channel, size))
            step = chance.choice([3000, FILL_BYTES_MIN, 60_000])
            frames += [
                f.frame(3, channel, body(size)[at : at + step]) for at in range(0, size, step)
            ]
        queues.append(frames)
    data = bytearray()
    while any(queues):
        data += chance.choice([queue for queue in queues if queue]).pop(0)
    edges = sorted(chance.randrange(len(data)) for _ in range(chance.choice([5, 60])))
    scanner = both.scan.FrameScanner(FRAME_MAX)
    found = messages(scanner, cut(bytes(data), *edges))
    for channel, bodies in sent.items():
        assert [row[2] for there, row in found if there == channel] == bodies
    assert scanner.pending_bytes == 0


def test_what_has_arrived_is_counted_before_its_frame_is_whole(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(FRAME_MAX)
    head = f.publish_method(1, b"", b"q") + f.header(1, 90_000)
    frame = f.frame(3, 1, body(90_000))
    assert scanner.feed(head + frame[:40_000]) == []
    assert scanner.pending_bytes == 40_000 - 7
    assert scanner.feed(frame[40_000:-1]) == [], "its end octet may be wrong"
    assert scanner.pending_bytes == 90_000
    assert scanner.feed(frame[-1:]) == [PublishRun(1, 0, 1, 0, 1)]
    assert scanner.pending_bytes == 0


@pytest.mark.parametrize("at", [30_000, 50_000 + 7])
def test_a_frame_that_was_begun_needs_its_end_octet(both: Kernel, at: int) -> None:
    scanner = both.scan.FrameScanner(FRAME_MAX)
    frame = f.frame(3, 1, body(50_000))[:-1] + b"\x00"
    assert scanner.feed(f.publish_method(1, b"", b"q") + f.header(1, 50_000) + frame[:at]) == []
    (found,) = scanner.feed(frame[at:])
    assert isinstance(found, Malformed) and found.code == 501
    assert "invalid_frame_end_marker, 0" in found.text
    assert scanner.pending_bytes == 0 and scanner.table.count == 0


def test_a_frame_that_exceeds_its_message_is_refused_when_whole(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(FRAME_MAX)
    frame = f.frame(3, 1, body(50_001))
    assert scanner.feed(f.publish_method(1, b"", b"q") + f.header(1, 50_000) + frame[:900]) == []
    (found,) = scanner.feed(frame[900:])
    assert isinstance(found, Malformed) and "by 1 bytes" in found.text


def test_a_channel_closed_amid_a_frame_drops_the_rest_of_it(both: Kernel) -> None:
    data = f.publish(1, b"", b"q", body(60_000), piece=30_000)
    other = f.publish(2, b"", b"q", b"x")
    for at in (3_000, 29_990, 30_060, 45_000, len(data) - 1):
        scanner = both.scan.FrameScanner(FRAME_MAX)
        assert scanner.feed(data[:at]) == []
        scanner.discard_channel(1)
        assert scanner.pending_bytes < FILL_BYTES_MIN
        assert scanner.feed(data[at:] + other) == [PublishRun(2, 0, 1, 0, 1)], at
        assert scanner.feed(f.method(1, 20, 41)) == [MethodItem(1, 20, 41, b"")]
        scanner.take_table()
        assert [row[2] for _, row in messages(scanner, [data])] == [body(60_000)]


def test_a_message_above_the_limit_is_dropped_amid_its_frames(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(FRAME_MAX, 50_000)
    data = f.publish(1, b"", b"q", body(50_001))
    (found,) = scanner.feed(data[:20_000])
    assert isinstance(found, ContentRefused) and found.code == 406
    assert scanner.feed(data[20_000:] + f.publish(2, b"", b"q", b"x"))[0].channel == 2
    assert scanner.pending_bytes == 0


def test_a_header_alone_costs_no_memory(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(FRAME_MAX, 128 << 20)
    begun = b"".join(
        f.publish_method(channel, b"", b"q") + f.header(channel, 128 << 20)
        for channel in range(1, 9)
    )
    start = f.frame(3, 1, bytes(100_000))[:10_000]
    tracemalloc.start()
    try:
        assert scanner.feed(begun + start) == []
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_the_limit_of_unfinished_messages_counts_whole_frames(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(FRAME_MAX, 1 << 20, 100_000)
    data = f.publish(1, b"", b"q", body(110_000), piece=90_000)
    assert messages(scanner, cut(data, 50_000, 90_060, 105_000))[0][1][2] == body(110_000)
    data = f.publish(1, b"", b"q", body(300_000), piece=90_000)
    assert scanner.feed(data[:150_000]) == []
    (found,) = scanner.feed(data[150_000:])
    assert isinstance(found, Malformed) and found.code == 506
    assert scanner.pending_bytes == 0
