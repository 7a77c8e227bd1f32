"""Received bytes to messages, settlements, other methods; every refusal."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.wire.kernel import frames as f
from warren_wire import kernel
from warren_wire.kernel import (
    AckRun,
    ContentRefused,
    Heartbeat,
    Kernel,
    Malformed,
    MethodItem,
    PublishRun,
    Route,
)

Rows = list[tuple[Route, bytes, bytes, int, int, int]]


def rows(table: Any) -> Rows:
    """A table as Python values."""
    return [
        (
            table.route(i),
            table.properties_of(i),
            table.body(i),
            table.priority(i),
            table.ttl_ms(i),
            table.flags(i),
        )
        for i in range(table.count)
    ]


def test_whole_messages_make_one_run(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    data = f.publish(1, b"x", b"k", b"one") + f.publish(1, b"x", b"k", b"") * 2
    assert scanner.feed(data) == [PublishRun(1, 0, 3, 0, kernel.PERSISTENT)]
    route = Route(b"x", b"k", False)
    expected = [
        (route, f.PLAIN, body, 4, kernel.TTL_NONE, kernel.PERSISTENT) for body in (b"one", b"", b"")
    ]
    assert rows(scanner.table) == expected


def test_runs_end_where_the_channel_changes(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    one = f.publish(1, b"", b"a", b"1")
    two = f.publish(2, b"", b"b", b"2", flags=1)
    assert scanner.feed(one + two + two + one + f.publish(1, b"", b"b", b"3", b"\0\0")) == [
        PublishRun(1, 0, 1, 0, kernel.PERSISTENT),
        PublishRun(2, 1, 3, 1, kernel.PERSISTENT),
        PublishRun(1, 3, 5, -1, kernel.PERSISTENT),
    ]
    assert scanner.table.routes.entries == [
        Route(b"", b"a", False),
        Route(b"", b"b", True),
        Route(b"", b"b", False),
    ]


def in_frames(channel: int, key: bytes, *pieces: bytes) -> list[bytes]:
    """Return the frames of one message with its body in those pieces."""
    head = [f.publish_method(channel, b"", key), f.header(channel, sum(map(len, pieces)))]
    return head + [f.frame(3, channel, piece) for piece in pieces]


def test_bodies_in_many_frames_interleaved_between_channels(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    first = in_frames(1, b"a", b"abc", b"", b"def")
    second = in_frames(2, b"b", b"12", b"3", b"4")
    mixed = b"".join(x + y for x, y in zip(first, second, strict=True))
    whole = f.publish(3, b"", b"c", b"between")
    items = scanner.feed(mixed[:-9] + whole + mixed[-9:])
    assert items == [
        PublishRun(1, 0, 1, 0, 1),
        PublishRun(3, 1, 2, 2, 1),
        PublishRun(2, 2, 3, 1, 1),
    ]
    assert [row[2] for row in rows(scanner.table)] == [b"abcdef", b"between", b"1234"]
    assert scanner.pending_bytes == 0


def test_the_table_may_be_taken_in_the_middle_of_a_message(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    data = f.publish(1, b"", b"a", b"x") + f.publish(1, b"e", b"b", b"abcdef", piece=2)
    scanner.feed(data[:-10])
    first = scanner.take_table()
    assert scanner.feed(data[-10:] + f.publish(1, b"", b"a", b"y"))
    assert [row[2] for row in rows(first)] == [b"x"]
    assert [(row[0].routing_key, row[2]) for row in rows(scanner.table)] == [
        (b"b", b"abcdef"),
        (b"a", b"y"),
    ]
    assert first.routes is scanner.table.routes


def test_the_dictionary_of_routes_stays_bounded(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    keys = [b"reply.%d" % i for i in range(5000)]
    pending = f.publish(9, b"late", b"one", b"abcdef", piece=3)
    scanner.feed(b"".join(f.publish(1, b"", key, b"") for key in keys) + pending[:-11])
    old = scanner.take_table()
    assert len(old.routes.entries) == 5001
    scanner.feed(f.publish(1, b"", b"new", b"") + pending[-11:])
    assert scanner.table.routes.entries == [
        Route(b"", b"new", False),
        Route(b"late", b"one", False),
    ]
    assert old.route(4999) == Route(b"", b"reply.4999", False)


def test_meaningless_bits_do_not_make_another_route(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    data = b"".join(f.publish(1, b"x", b"k", b"", flags=flags) for flags in (1, 0xFD, 0, 0xFC))
    assert [(item.route, item.last) for item in scanner.feed(data)] == [(-1, 4)]
    assert [scanner.table.route_id(i) for i in range(4)] == [0, 0, 1, 1]


def test_settlements_are_joined(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    data = b"".join(
        [
            *(f.ack(1, tag) for tag in (5, 6, 7, 9, 8)),
            f.ack(1, 12, multiple=True),
            f.ack(1, 13),
            f.nack(1, 14),
            f.nack(1, 15),
            f.nack(1, 16, requeue=False),
            f.nack(1, 0, multiple=True),
            f.reject(1, 1),
            f.reject(1, 2),
            f.reject(1, 3, requeue=False),
            f.ack(2, 4),
            f.ack(1, 4),
            f.ack(1, 0),
        ]
    )
    assert scanner.feed(data) == [
        AckRun(
            1,
            (
                (kernel.ACK, 5, 7, False),
                (kernel.ACK, 9, 9, False),
                (kernel.ACK, 8, 8, False),
                (kernel.ACK, 0, 12, True),
                (kernel.ACK, 13, 13, False),
                (kernel.NACK_REQUEUE, 14, 15, False),
                (kernel.NACK_DISCARD, 16, 16, False),
                (kernel.NACK_REQUEUE, 0, 0, True),
                (kernel.REJECT_REQUEUE, 1, 2, False),
                (kernel.REJECT_DISCARD, 3, 3, False),
            ),
        ),
        AckRun(2, ((kernel.ACK, 4, 4, False),)),
        AckRun(1, ((kernel.ACK, 4, 4, False), (kernel.ACK, 0, 0, False))),
    ]


def test_the_largest_tag(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    last = 2**64 - 1
    items = scanner.feed(f.ack(1, last) + f.ack(1, 0))
    assert items == [AckRun(1, ((kernel.ACK, last, last, False), (kernel.ACK, 0, 0, False)))]


def test_order_between_items_is_kept(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    data = (
        f.ack(1, 1)
        + f.publish(1, b"", b"q", b"")
        + f.frame(8, 0, b"")
        + f.ack(1, 2)
        + f.method(1, 85, 10, b"\0")
        + f.publish(1, b"", b"q", b"")
    )
    assert scanner.feed(data) == [
        AckRun(1, ((kernel.ACK, 1, 1, False),)),
        PublishRun(1, 0, 1, 0, 1),
        Heartbeat(),
        AckRun(1, ((kernel.ACK, 2, 2, False),)),
        MethodItem(1, 85, 10, b"\0"),
        PublishRun(1, 1, 2, 0, 1),
    ]


@pytest.mark.parametrize(
    ("properties", "priority", "ttl", "flags"),
    [
        (f.properties(), 4, kernel.TTL_NONE, 0),
        (b"\x10\x00\x01", 4, kernel.TTL_NONE, 0),
        (f.properties(priority=0), 0, kernel.TTL_NONE, 0),
        (f.properties(priority=255), 31, kernel.TTL_NONE, 0),
        (f.properties(expiration=b"0"), 4, 0, 0),
        (f.properties(expiration=b"+060"), 4, 60, 0),
        (f.properties(expiration=b"4294967295"), 4, 4294967294, 0),
        (f.properties(expiration=b"4294967296"), 4, kernel.TTL_NONE, kernel.BAD_EXPIRATION),
        (f.properties(expiration=b"-1"), 4, kernel.TTL_NONE, kernel.BAD_EXPIRATION),
        (f.properties(expiration=b""), 4, kernel.TTL_NONE, kernel.BAD_EXPIRATION),
        (f.properties(expiration=b"+"), 4, kernel.TTL_NONE, kernel.BAD_EXPIRATION),
        (f.properties(expiration=b"10s"), 4, kernel.TTL_NONE, kernel.BAD_EXPIRATION),
        (f.properties(user_id=b"guest", timestamp=7), 4, kernel.TTL_NONE, kernel.USER_ID),
        (
            f.properties(reply_to=b"amq.rabbitmq.reply-to"),
            4,
            kernel.TTL_NONE,
            kernel.DIRECT_REPLY_TO,
        ),
        (f.properties(reply_to=b"amq.rabbitmq.reply-tp"), 4, kernel.TTL_NONE, 0),
        (f.properties(reply_to=b"amq.rabbitmq.reply"), 4, kernel.TTL_NONE, 0),
        (f.properties(headers=f.table()), 4, kernel.TTL_NONE, kernel.HEADERS),
        (
            f.properties(headers=f.table((b"CC", b"A\0\0\0\x06S\0\0\0\x01k"))),
            4,
            kernel.TTL_NONE,
            kernel.HEADERS | kernel.CC,
        ),
        (
            f.properties(headers=f.table((b"a", b"t\1"), (b"BCC", b"V"))),
            4,
            kernel.TTL_NONE,
            kernel.HEADERS | kernel.CC,
        ),
        (
            f.properties(headers=f.table((b"n", b"F" + f.table((b"CC", b"V"))))),
            4,
            kernel.TTL_NONE,
            kernel.HEADERS,
        ),
        (
            f.properties(
                headers=f.table(
                    *(
                        (bytes((kind,)), bytes((kind,)) + bytes(size))
                        for kind, size in zip(
                            b"bBsuIifdlLTtDV",
                            (1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 8, 1, 5, 0),
                            strict=True,
                        )
                    )
                )
            ),
            4,
            kernel.TTL_NONE,
            kernel.HEADERS,
        ),
    ],
)
def test_what_properties_say(
    both: Kernel, properties: bytes, priority: int, ttl: int, flags: int
) -> None:
    scanner = both.scan.FrameScanner(4096)
    pieces = f.publish(1, b"", b"q", b"ab", properties, piece=1)
    assert scanner.feed(f.publish(1, b"", b"q", b"b", properties) + pieces) == [
        PublishRun(1, 0, 2, 0, flags)
    ]
    for i in range(2):
        assert scanner.table.priority(i) == priority
        assert scanner.table.ttl_ms(i) == ttl
        assert scanner.table.flags(i) == flags
        assert scanner.table.properties_of(i) == properties


DEEP = b"V"
for _ in range(80):
    DEEP = b"A" + struct.pack(">I", len(DEEP)) + DEEP


@pytest.mark.parametrize(
    "properties",
    [
        b"\x10\x00",
        b"\x10\x00\x02\x00",
        b"\x00\x01",
        b"\x00\x02",
        b"\x80\x00\x05abc",
        b"\x00\x40\0\0\0",
        b"\x20\x00\0\0\0",
        b"\x20\x00\0\0\0\x05\x01a",
        f.properties(headers=b"\0\0\0\x03\x02aV"),
        f.properties(headers=f.table((b"a", b"Z"))),
        f.properties(headers=f.table((b"a", b"S\0\0\0\x05abcd"))),
        f.properties(headers=f.table((b"a", b"A\0\0\0\x02I\0"))),
        f.properties(headers=f.table((b"a", b"F\0\0\0\x02\x05a"))),
        f.properties(headers=f.table((b"a", DEEP))),
    ],
)
def test_malformed_properties(both: Kernel, properties: bytes) -> None:
    scanner = both.scan.FrameScanner(4096)
    items = scanner.feed(f.publish(1, b"", b"q", b"x") + f.publish(1, b"", b"q", b"b", properties))
    assert items[0] == PublishRun(1, 0, 1, 0, 1)
    assert items[1] == Malformed(1, 502, "malformed properties", 60, 40)


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (f.frame(9, 1, b"abc"), 501, "unknown_frame"),
        (f.frame(1, 1, b"abc"), 501, "unknown_frame"),
        (f.frame(8, 0, b"a"), 501, "unknown_frame"),
        (f.frame(1, 1, b"\0\x14\0\x0a")[:-1] + b"\xcf", 501, "invalid_frame_end_marker, 207"),
        (b"\x01\0\x01\xff\xff\xff\xff", 501, "frame_too_large, 4294967295, 4088"),
        (b"HTTP/1.1 GET", 501, "unknown_frame"),
        (f.frame(8, 3, b""), 505, "channel 3"),
        (f.header(1, 4), 505, "expected method frame"),
        (f.frame(3, 1, b"x"), 505, "expected method frame"),
        (f.frame(3, 0, b"x"), 505, "expected method frame"),
        (f.publish_method(1, b"", b"q") + f.frame(3, 1, b"x"), 505, "non content header frame"),
        (f.publish_method(1, b"", b"q") + f.method(1, 20, 10, b"\1"), 505, "content header"),
        (f.publish_method(1, b"", b"q") * 2, 505, "content header"),
        (f.publish_method(1, b"", b"q") + f.header(1, 4) * 2, 505, "content body"),
        (f.publish_method(1, b"", b"q") + f.header(1, 4) + f.ack(1, 1), 505, "content body"),
        (
            f.publish_method(1, b"", b"q") + f.frame(2, 1, struct.pack(">HHQH", 50, 0, 1, 0)),
            505,
            "class 60, got one for class 50",
        ),
        (
            f.publish_method(1, b"", b"q") + f.frame(2, 1, struct.pack(">HHQ", 60, 0, 1)),
            501,
            "too short",
        ),
        (
            f.publish_method(1, b"", b"q") + f.header(1, 4) + f.frame(3, 1, b"12345"),
            501,
            "by 1 bytes",
        ),
        (f.publish(1, b"", b"q", b"", flags=2), 540, "immediate=true"),
        (f.method(1, 60, 40), 502, "basic.publish"),
        (f.method(1, 60, 40, b"\0\0"), 502, "basic.publish"),
        (f.method(1, 60, 40, b"\0\0\0\0"), 502, "basic.publish"),
        (f.method(1, 60, 40, b"\0\0\x05ab\0\0"), 502, "basic.publish"),
        (f.method(1, 60, 40, b"\0\0\0\x09ab\0"), 502, "basic.publish"),
        (f.method(1, 60, 40, b"\0\0\0\0\0\0"), 502, "basic.publish"),
        (f.method(1, 60, 80, b"\0\0"), 502, "2 bytes"),
        (f.method(1, 60, 120, bytes(10)), 502, "10 bytes"),
    ],
)
def test_refusals_of_the_connection(both: Kernel, data: bytes, code: int, words: str) -> None:
    scanner = both.scan.FrameScanner(4096)
    good = f.publish(2, b"", b"q", b"good")
    items = scanner.feed(good + data + good)
    assert items[0] == PublishRun(2, 0, 1, 0, 1)
    assert len(items) == 2 and isinstance(items[1], Malformed)
    assert items[1].code == code and words in items[1].text, items[1]
    assert scanner.feed(good) == []
    assert scanner.pending_bytes == 0
    assert scanner.table.count == 1


def test_the_agreed_frame_size(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    assert scanner.feed(f.publish(1, b"", b"q", b"x" * 4096)) == [PublishRun(1, 0, 1, 0, 1)]
    assert scanner.feed(f.publish(1, b"", b"q", b"x" * 4097))[0].code == 501
    scanner = both.scan.FrameScanner(4096)
    scanner.frame_max = 8192
    assert scanner.feed(f.publish(1, b"", b"q", b"x" * 8192)) == [PublishRun(1, 0, 1, 0, 1)]


def test_a_message_above_the_limit_costs_its_channel_only(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096, 1000)
    good = f.publish(2, b"", b"q", b"g")
    large = f.publish(1, b"", b"q", b"x" * 1001, piece=500)
    items = scanner.feed(large + good + large + f.ack(1, 7))
    text = "message size 1001 is larger than configured max size 1000"
    assert items == [
        ContentRefused(1, 406, text),
        PublishRun(2, 0, 1, 0, 1),
        AckRun(1, ((kernel.ACK, 7, 7, False),)),
    ]
    assert scanner.pending_bytes == 0
    exact = f.publish(1, b"", b"q", b"y" * 1000)
    assert scanner.feed(exact) == []
    assert scanner.feed(f.method(1, 20, 41) + exact) == [
        MethodItem(1, 20, 41, b""),
        PublishRun(1, 1, 2, 0, 1),
    ]


def test_a_wild_size_is_refused_before_its_body(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    items = scanner.feed(f.publish_method(1, b"", b"q") + f.header(1, 2**64 - 1))
    assert items[0].code == 406 and "18446744073709551615" in items[0].text


def test_a_discarded_channel_may_stop_anywhere(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(4096)
    message = f.publish(1, b"", b"q", b"abcdef", piece=2)
    for cut in range(len(message) + 1):
        scanner.feed(message[:cut])
        scanner.discard_channel(1)
        rest = message[cut:] + message
        assert scanner.feed(rest + f.publish(2, b"", b"q", b"x"))[-1].channel == 2
        closed = scanner.feed(f.publish_method(1, b"", b"q") + f.method(1, 20, 41))
        assert closed == [MethodItem(1, 20, 41, b"")]
        again = scanner.feed(f.publish(1, b"", b"q", b"new"))
        assert again[-1].channel == 1 and scanner.table.body(scanner.table.count - 1) == b"new"


def test_every_split_gives_the_same(both: Kernel) -> None:
    data = b"".join(
        [
            f.publish(1, b"x", b"k", b"one"),
            f.ack(1, 3),
            f.publish(1, b"x", b"k2", b"", flags=1),
            f.publish(2, b"", b"q", b"abcdef", f.properties(priority=9, expiration=b"5"), piece=2),
            f.frame(8, 0, b""),
            f.method(3, 50, 10, b"args"),
            f.publish(1, b"x", b"k", b"last"),
        ]
    )
    whole = both.scan.FrameScanner(4096)
    whole.feed(data)
    for cut in range(len(data)):
        scanner = both.scan.FrameScanner(4096)
        items = scanner.feed(data[:cut]) + scanner.feed(data[cut:])
        assert rows(scanner.table) == rows(whole.table), cut
        assert [i for i in items if isinstance(i, MethodItem | Heartbeat)] == [
            Heartbeat(),
            MethodItem(3, 50, 10, b"args"),
        ]
    single = both.scan.FrameScanner(4096)
    for k in range(len(data)):
        single.feed(data[k : k + 1])
        assert single.pending_bytes < 100
    assert rows(single.table) == rows(whole.table)
    assert single.pending_bytes == 0


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer(both: Kernel, kind: Any) -> None:
    scanner = both.scan.FrameScanner(4096)
    data = f.publish(1, b"", b"q", b"x")
    assert scanner.feed(kind(data)) == [PublishRun(1, 0, 1, 0, 1)]
    assert scanner.feed(kind(b"")) == []
    assert scanner.feed(kind(data[:5])) == []
    assert scanner.feed(kind(data[5:])) == [PublishRun(1, 1, 2, 0, 1)]


def test_a_message_of_many_megabytes(both: Kernel) -> None:
    scanner = both.scan.FrameScanner(131072)
    body = bytes(range(256)) * 16384
    data = f.publish(1, b"", b"q", body, piece=131064)
    items = []
    for at in range(0, len(data), 65536):
        items += scanner.feed(data[at : at + 65536])
    assert items == [PublishRun(1, 0, 1, 0, 1)]
    assert scanner.table.body(0) == body
