"""The frames between a node and the process of its HTTP API."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren_broker.http.frames import (
    API_FRAME_BYTES_MAX,
    ApiJob,
    ApiListener,
    FrameReader,
    NodeAsk,
    NodeReply,
    ReceivedAsk,
    decode_frame,
    encode_frame,
)
from warren_wire.amqp10.proton import uint, ulong
from warren_wire.errors import FrameError

ASK = NodeAsk(7, "[::1]:9", "user", "secret", "PUT /queues/:queue", {"a": [1, b"x"]}, "/")


def sent(ask: ReceivedAsk) -> NodeAsk:
    """The request that was sent, with its fields decoded."""
    fields = {**msgspec.structs.asdict(ask), "fields": decode_frame(dict, ask.fields)}
    return NodeAsk(**fields)


def only(data: bytes) -> bytes:
    (frame,) = FrameReader().feed(data)
    return frame


def test_each_message_comes_back() -> None:
    reply = NodeReply(7, 200, {"n": 1}, "amqp:not-found")
    job = ApiJob(
        *("n", "1", "quorum", (ApiListener("amqp", "::", 5672),), (3, 4)),
        *({"http": {}}, ("amqp", "h", 1), 5, 6),
    )
    assert sent(decode_frame(ReceivedAsk, only(encode_frame(ASK)))) == ASK
    assert decode_frame(NodeReply, only(encode_frame(reply))) == reply
    assert decode_frame(ApiJob, only(encode_frame(job))) == job


@given(st.lists(st.integers(1, 40), max_size=30))
def test_a_stream_is_cut_wherever_it_was_divided(sizes: list[int]) -> None:
    stream = encode_frame(ASK) * 3
    reader, found, at = FrameReader(), [], 0
    for size in [*sizes, len(stream)]:
        found += reader.feed(stream[at : at + size])
        at += size
    assert [sent(decode_frame(ReceivedAsk, frame)) for frame in found] == [ASK] * 3


def test_numbers_of_proton_are_numbers() -> None:
    reply = decode_frame(
        NodeReply, only(encode_frame(NodeReply(1, 200, {"a": ulong(5), "b": [uint(2)]})))
    )
    assert reply.body == {"a": 5, "b": [2]}


def test_a_name_that_is_no_unicode_is_shown_with_backslashes() -> None:
    """It would otherwise end the answer, and with it every list that the queue is in."""
    reply = decode_frame(NodeReply, only(encode_frame(NodeReply(1, 200, [{"name": "q\udcff"}]))))
    assert reply.body == [{"name": "q\\udcff"}]


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="is the limit"):
        FrameReader().feed((API_FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    for bad in (b"", b"\xc1", b"\x92\xa1a\x02", b"\x91" * 5_000):
        for kind in (ReceivedAsk, NodeReply, ApiJob):
            with pytest.raises(FrameError, match="no message"):
                decode_frame(kind, bad)
    with pytest.raises(OverflowError):
        encode_frame(NodeReply(1, 200, 1 << 64))


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(ASK)
