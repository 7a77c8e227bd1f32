"""Grown and damaged byte streams: the two kernels agree, however the bytes are cut.

A third reader, `Dumb`, cuts the same frames one by one with nothing clever in it.
"""

from __future__ import annotations

import itertools
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.kernel import frames as f
from tests.wire.kernel.conftest import loaded
from tests.wire.kernel.test_scan import rows
from warren_wire.kernel import AckRun, Item, Kernel, Malformed, PublishRun

CHANNELS = st.sampled_from([0, 1, 1, 1, 2, 65535])
NAMES = st.sampled_from([b"", b"q", b"queue", b"amq.topic", b"k" * 255, b"\xff\x00"])
BODIES = st.one_of(
    st.binary(max_size=20), st.integers(0, 9000).map(lambda n: b"z" * n), st.just(b"\xce" * 9)
)
PROPERTIES = st.one_of(
    st.just(f.PLAIN),
    st.builds(
        f.properties,
        headers=st.sampled_from([None, f.table(), f.table((b"CC", b"V"), (b"x", b"t\1"))]),
        priority=st.none() | st.integers(0, 255),
        expiration=st.sampled_from([None, b"5", b"-5", b"4294967295", b"x"]),
        reply_to=st.sampled_from([None, b"r", b"amq.rabbitmq.reply-to"]),
        message_id=st.none() | st.binary(max_size=9),
    ),
    st.binary(min_size=2, max_size=12),
)
PUBLISHED = st.builds(
    f.publish,
    CHANNELS,
    NAMES,
    NAMES,
    BODIES,
    PROPERTIES,
    st.integers(0, 3),
    st.sampled_from([0, 0, 0, 1000, 4000]),
)
TAGS = st.integers(0, 6) | st.just(2**64 - 1)
FRAMES = st.one_of(
    PUBLISHED,
    PUBLISHED,
    PUBLISHED,
    st.builds(f.ack, CHANNELS, TAGS, st.booleans()),
    st.builds(f.ack, st.just(1), TAGS),
    st.builds(f.nack, CHANNELS, TAGS, st.booleans(), st.booleans()),
    st.builds(f.reject, CHANNELS, TAGS, st.booleans()),
    st.just(f.frame(8, 0, b"")),
    st.builds(
        f.method,
        CHANNELS,
        st.sampled_from([10, 20, 60, 85]),
        st.sampled_from([10, 11, 40, 41]),
        st.binary(max_size=9),
    ),
    st.builds(f.publish_method, CHANNELS, NAMES, NAMES),
    st.builds(f.header, CHANNELS, st.integers(0, 30)),
    st.builds(f.frame, st.integers(1, 9), CHANNELS, st.binary(max_size=30)),
)


def play(kernel: Kernel, pieces: list[bytes]) -> tuple[list[Item], Any]:
    scanner = kernel.scan.FrameScanner(4096, 8000)
    items: list[Item] = []
    for piece in pieces:
        items += scanner.feed(piece)
        assert scanner.pending_bytes <= 4096 + 8 + 4 * 8000
    return items, scanner


def joined(items: list[Item]) -> list[Any]:
    """Items with the runs that a cut between feeds has parted put together again."""
    found: list[Any] = []
    for item in items:
        before = found[-1] if found else None
        if isinstance(item, PublishRun) and isinstance(before, PublishRun):
            if before.channel == item.channel:
                assert before.last == item.first
                route = item.route if item.route == before.route else -1
                flags = item.flags | before.flags
                found[-1] = PublishRun(item.channel, before.first, item.last, route, flags)
                continue
        if isinstance(item, AckRun):
            ranges = tuple(
                one
                for r in item.ranges
                for one in ([r] if r[3] else [(r[0], t, t, False) for t in range(r[1], r[2] + 1)])
            )
            if isinstance(before, AckRun) and before.channel == item.channel:
                ranges = before.ranges + ranges
                found.pop()
            item = AckRun(item.channel, ranges)
        found.append(item)
    return found


def compare(data: bytes, cuts: list[int]) -> None:
    fast, slow = loaded("compiled"), loaded("interpreted")
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    items, scanner = play(fast, pieces)
    items_slow, scanner_slow = play(slow, pieces)
    assert items == items_slow
    assert scanner.pending_bytes == scanner_slow.pending_bytes
    for column in ("count", "rows", "properties", "bodies"):
        assert getattr(scanner.table, column) == getattr(scanner_slow.table, column), column
    assert scanner.table.routes.entries == scanner_slow.table.routes.entries
    whole, scanner_whole = play(fast, [data])
    # What a refusal shows of a damaged frame depends on how much of it was there.
    assert strip(joined(items)) == strip(joined(whole))
    assert scanner_whole.table.rows == scanner.table.rows
    assert scanner_whole.table.bodies == scanner.table.bodies


def strip(items: list[Any]) -> list[Any]:
    return [(i.code, i.channel) if isinstance(i, Malformed) else i for i in items]


@settings(max_examples=300, deadline=None)
@given(st.lists(FRAMES, max_size=12), st.lists(st.integers(0, 2**20), max_size=5))
def test_both_kernels_agree(frames: list[bytes], cuts: list[int]) -> None:
    compare(b"".join(frames), cuts)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(PUBLISHED, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=3),
    st.lists(st.integers(0, 2**20), max_size=3),
)
def test_both_kernels_agree_on_damage(
    frames: list[bytes], damage: list[tuple[int, int]], cuts: list[int]
) -> None:
    data = bytearray(b"".join(frames))
    for at, octet in damage:
        data[at % len(data)] = octet
    compare(bytes(data), cuts)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 2**20), max_size=3))
def test_both_kernels_agree_on_noise(data: bytes, cuts: list[int]) -> None:
    compare(data, cuts)


class Dumb:
    """Frames cut one by one, contents put together, nothing joined; well-formed input only."""

    def __init__(self) -> None:
        self.open: dict[int, list[Any]] = {}
        self.messages: list[tuple[int, bytes, bytes, bytes]] = []
        self.acks: list[tuple[int, int, int]] = []

    def feed(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            kind, channel, size = struct.unpack_from(">BHI", data, at)
            payload = data[at + 7 : at + 7 + size]
            at += size + 8
            if kind == 1 and payload[:4] == b"\0\x3c\0\x28":
                self.open[channel] = [payload[6:-1], None, b"", 0]
            elif kind == 1:
                tag, _ = struct.unpack(">QB", payload[4:])
                self.acks.append((channel, payload[3], tag))
            elif kind == 2:
                content = self.open[channel]
                content[3] = struct.unpack_from(">Q", payload, 4)[0]
                content[1] = payload[12:]
            else:
                self.open[channel][2] += payload
            if kind > 1 and len(self.open[channel][2]) == self.open[channel][3]:
                names, properties, body, _ = self.open.pop(channel)
                self.messages.append((channel, names, properties, body))


def grown(chance: random.Random, count: int) -> bytes:
    """A plausible connection: several channels, bodies in pieces, interleaved, some acks."""
    queues: list[list[bytes]] = []
    for channel in range(1, 5):
        frames: list[bytes] = []
        for _ in range(count):
            body = bytes(chance.choices(b"ab\xce\x01", k=chance.choice([0, 1, 5, 300])))
            frames.append(f.publish_method(channel, b"x", b"k%d" % chance.randrange(3)))
            frames.append(f.header(channel, len(body), f.properties(priority=chance.randrange(40))))
            step = chance.choice([1, 7, 400]) if len(body) < 50 else 100
            frames += [f.frame(3, channel, body[k : k + step]) for k in range(0, len(body), step)]
            if chance.random() < 0.2:
                frames.append(f.ack(channel, chance.randrange(1, 9)))
        queues.append(frames)
    data = []
    while any(queues):
        queue = chance.choice([queue for queue in queues if queue])
        for _ in range(chance.choice([1, 3, 9])):
            if queue:
                data.append(queue.pop(0))
    return b"".join(data)


@pytest.mark.parametrize("seed", range(30))
def test_against_the_dumb_reader(both: Kernel, seed: int) -> None:
    chance = random.Random(seed)
    data = grown(chance, 12)
    dumb = Dumb()
    dumb.feed(data)
    scanner = both.scan.FrameScanner(4096)
    messages: list[tuple[int, bytes, bytes, bytes]] = []
    acks: list[tuple[int, int, int]] = []
    at = 0
    while at < len(data):
        size = chance.choice([1, 3, 50, 1000])
        for item in scanner.feed(data[at : at + size]):
            if isinstance(item, PublishRun):
                for row in rows(scanner.table)[item.first : item.last]:
                    names = f.short(row[0].exchange) + f.short(row[0].routing_key)
                    messages.append((item.channel, names, row[1], row[2]))
            elif isinstance(item, AckRun):
                for _, first, last, _ in item.ranges:
                    acks += [(item.channel, 80, tag) for tag in range(first, last + 1)]
        at += size
        if chance.random() < 0.1:
            scanner.take_table()
    assert messages == dumb.messages
    assert acks == dumb.acks
