"""Deliveries cut from a broker's bytes: columns out, everything else passed on unchanged."""

from __future__ import annotations

import struct
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.kernel import frames as f
from tests.wire.kernel.conftest import loaded
from warren_wire.kernel import DeliveryMalformed, Kernel

CHANNEL = 3
LIMIT = 1 << 20


def deliver(
    tag: int,
    body: bytes,
    properties: bytes = f.PLAIN,
    exchange: bytes = b"",
    key: bytes = b"q",
    redelivered: bool = False,
    piece: int = 0,
    channel: int = CHANNEL,
    consumer: bytes = b"ctag",
) -> bytes:
    """All frames of a delivery; its body in pieces of that many bytes, 0: in one."""
    fields = f.short(consumer) + struct.pack(">QB", tag, redelivered)
    frames = [
        f.method(channel, 60, 60, fields + f.short(exchange) + f.short(key)),
        f.header(channel, len(body), properties),
    ]
    step = piece or max(1, len(body))
    frames += [f.frame(3, channel, body[at : at + step]) for at in range(0, len(body), step)]
    return b"".join(frames)


def scanner(kernel: Kernel) -> Any:
    return kernel.delivery_scan.DeliveryScanner(CHANNEL, 131072, LIMIT)


def column(made: Any, count: int) -> list[bytes]:
    ends = array("i", bytes(made.offsets))
    assert len(ends) == count + 1 and ends[0] == 0 and ends[-1] == len(made.data)
    return [bytes(made.data[ends[i] : ends[i + 1]]) for i in range(count)]


def rows(taken: Any) -> list[tuple[Any, ...]]:
    """(tag, redelivered, exchange, routing key, properties, body) of each message."""
    count = taken.count
    return list(
        zip(
            array("Q", bytes(taken.tags)),
            [bool(octet) for octet in taken.redelivered],
            column(taken.exchange, count),
            column(taken.routing_key, count),
            column(taken.properties, count),
            column(taken.body, count),
            strict=True,
        )
    )


MESSAGES = st.builds(
    lambda tag, body, exchange, key, redelivered, piece, consumer: (
        deliver(tag, body, f.PLAIN, exchange, key, redelivered, piece, CHANNEL, consumer),
        (tag, redelivered, exchange, key, f.PLAIN, body),
    ),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=40) | st.integers(0, 9000).map(lambda n: b"z" * n) | st.just(b"\xce" * 9),
    st.sampled_from([b"", b"amq.topic", b"e" * 255]),
    st.sampled_from([b"", b"q", b"k" * 255, b"\xff\x00"]),
    st.booleans(),
    st.sampled_from([0, 0, 7, 4000]),
    st.sampled_from([b"", b"ctag", b"c" * 255]),
)
OTHERS = st.sampled_from(
    [
        f.frame(8, 0, b""),
        f.method(CHANNEL, 60, 21, f.short(b"ctag")),
        f.method(0, 10, 60, b"\0"),
        deliver(1, b"of another channel", channel=CHANNEL + 1),
        # basic.get-ok and basic.return on the channel itself: content that is no delivery's
        f.method(CHANNEL, 60, 71, b"x" * 15) + f.header(CHANNEL, 2) + f.frame(3, CHANNEL, b"hi"),
        f.method(CHANNEL, 60, 50, b"x" * 9) + f.header(CHANNEL, 0),
    ]
).map(lambda data: (data, None))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(MESSAGES | OTHERS, max_size=8),
    st.lists(st.integers(0, 30000), max_size=8),
    st.sets(st.integers(0, 9)),
)
@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_however_the_bytes_are_cut_and_the_columns_taken(
    mode: str, pieces: list[Any], cuts: list[int], takes: set[int]
) -> None:
    made = scanner(loaded(mode))
    data = b"".join(each for each, _ in pieces)
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    got: list[Any] = []
    other = b""
    for i in range(len(edges) - 1):
        other += made.feed(data[edges[i] : edges[i + 1]])
        if i in takes:
            got += rows(made.take())
    got += rows(made.take())
    assert got == [row for _, row in pieces if row is not None]
    assert other == b"".join(each for each, row in pieces if row is None)


def test_columns_that_were_taken_are_not_touched_again(both: Kernel) -> None:
    made = scanner(both)
    first = deliver(1, b"one")
    second = deliver(2, b"two" * 100, piece=50)
    made.feed(first + second[:-120])
    taken = made.take()
    held = memoryview(taken.body.data)  # as Arrow holds it: growing it would raise
    made.feed(second[-120:])
    assert bytes(held) == b"one" and taken.count == 1
    assert [row[-1] for row in rows(made.take())] == [b"two" * 100]


def test_a_closed_channel_drops_the_message_it_interrupts(both: Kernel) -> None:
    made = scanner(both)
    close = f.method(CHANNEL, 20, 40, struct.pack(">H", 406) + f.short(b"timeout") + b"\0\0\0\0")
    cut = deliver(2, b"half of it", piece=5)[:-13]
    assert made.feed(deliver(1, b"whole") + cut + close) == close
    assert [row[-1] for row in rows(made.take())] == [b"whole"]
    made.feed(deliver(3, b"next"))
    assert [row[0] for row in rows(made.take())] == [3]


def test_a_server_of_another_version_is_passed_on(both: Kernel) -> None:
    made = scanner(both)
    assert made.feed(b"AMQP\0\0") + made.feed(b"\x09\x01rest") == b"AMQP\0\0\x09\x01rest"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"HTTP/1.1 400 Bad", "frame of type 72"),
        (f.frame(1, CHANNEL, b"\0" * 200000), "above 131072"),
        (deliver(1, b"x")[:-1] + b"\0", "ends with 0"),
        (f.method(CHANNEL, 60, 60, b"\x04ctag"), "malformed basic.deliver"),
        (f.method(CHANNEL, 60, 60, b""), "malformed basic.deliver"),
        (f.method(CHANNEL, 60, 60, b"\0" * 13), "malformed basic.deliver"),
        (deliver(1, b"x", piece=1) * 2, None),
        (deliver(1, b"abc")[:-11] + deliver(2, b""), "middle of a message"),
        (f.frame(1, CHANNEL, b"\0\x3c"), "method frame of 2 bytes"),
        (
            deliver(1, b"")[: -len(f.header(CHANNEL, 0))] + f.header(CHANNEL, LIMIT + 1),
            "above 1048576",
        ),
        (
            deliver(1, b"")[: -len(f.header(CHANNEL, 0))]
            + f.header(CHANNEL, 2)
            + f.frame(3, CHANNEL, b"four"),
            "2 bytes of body above",
        ),
    ],
)
def test_bytes_that_cannot_be(both: Kernel, data: bytes, says: str | None) -> None:
    made = scanner(both)
    if says is None:
        assert made.feed(data) == b"" and made.filled.count == 2
        return
    with pytest.raises(DeliveryMalformed, match=says):
        made.feed(data)
