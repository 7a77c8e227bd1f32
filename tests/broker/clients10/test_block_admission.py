"""A block is refused for what an AMQP 0.9.1 publish is refused for."""

from __future__ import annotations

import struct
import zlib

import pytest

from tests.wire.kernel import frames as f
from warren_broker.access.message_checks import KEYED_BYTES_PER_STEP
from warren_broker.clients10.block_admission import LOOKED_AT_ONCE, admit
from warren_machines.steps import STEPS_UNBOUNDED, Steps, whole
from warren_wire import errors
from warren_wire.block import block as b
from warren_wire.block.block import BLOCK_MESSAGES_MAX, TTL_NONE
from warren_wire.kernel import USER_ID, MessageTable

LIMITS = 1000, 4096
QUEUE = (b"", b"q")
NOT_UTF8 = f.properties(expiration=b"\xff\xfe1")


def admitted(data: bytes, exchange: str = "") -> MessageTable:
    return whole(admit(data, exchange, *LIMITS, Steps(STEPS_UNBOUNDED)))


def block_of(*raw: bytes, route: b.Route = QUEUE) -> bytes:
    return b.encode([b"body"] * len(raw), list(raw), route)


REFUSED = {
    "no property bytes at all, the first message's": (
        block_of(b"", f.PLAIN),
        errors.InvalidArgument,
        "message 0 .* malformed",
    ),
    "no property bytes at all, a later message's": (
        block_of(f.PLAIN, b""),
        errors.InvalidArgument,
        "message 1 .* malformed",
    ),
    "an expiration that is no UTF-8": (
        block_of(f.PLAIN, NOT_UTF8),
        errors.PreconditionFailed,
        "invalid expiration",
    ),
    "an expiration that is no number": (
        block_of(f.properties(expiration=b"soon")),
        errors.PreconditionFailed,
        "'soon'",
    ),
    "a short string beyond the end": (
        block_of(b"\x80\x00\x09x"),
        errors.InvalidArgument,
        "malformed",
    ),
    "a header table beyond the end": (
        block_of(b"\x20\x00\x00\x00\x00\x09\x01aV"),
        errors.InvalidArgument,
        "malformed",
    ),
    "tables within one another": (
        block_of(f.properties(headers=f.nested(65))),
        errors.InvalidArgument,
        "malformed",
    ),
    "CC that is no list": (
        block_of(f.properties(headers=f.table((b"CC", b"V")))),
        errors.PreconditionFailed,
        "unacceptable_type_in_header",
    ),
    "reply_to of somebody who does not consume": (
        block_of(f.properties(reply_to=b"amq.rabbitmq.reply-to")),
        errors.PreconditionFailed,
        "fast reply consumer",
    ),
    "properties that no frame holds": (
        block_of(
            f.properties(headers=f.table((b"h", b"S" + struct.pack(">I", 5000) + b"x" * 5000)))
        ),
        errors.InvalidArgument,
        "bytes of properties; the limit is 4076",
    ),
    "a body above the limit": (
        b.encode([b"x" * 1001], [f.PLAIN], QUEUE),
        errors.ContentTooLarge,
        "message_size_max",
    ),
    "AMQP 1.0 sections": (b.encode([b""], [b""], QUEUE, form=1), errors.InvalidArgument, "form 1"),
    "no messages": (b.encode([], [], QUEUE), errors.InvalidArgument, "without messages"),
    "no block": (b"WBLK", errors.InvalidArgument, "not a block"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_as_an_amqp091_publish_is(case: str) -> None:
    data, refusal, text = REFUSED[case]
    with pytest.raises(refusal, match=text):
        admitted(data, "")


def test_the_exchange_is_the_one_that_was_asked_for() -> None:
    """Not what the block claims: the right to publish was asked for there."""
    table = admitted(block_of(f.PLAIN, route=(b"secret", b"k")), "amq.topic")
    assert (table.route(0).exchange, table.route(0).routing_key) == (b"amq.topic", b"k")


def test_an_expiration_counts_without_a_column() -> None:
    data = b.encode(
        [b"1", b"2", b"3"],
        [f.properties(expiration=b"500"), f.PLAIN, f.properties(expiration=b"7")],
        QUEUE,
        ttls_ms=[None, 9, 8],
    )
    table = admitted(data, "")
    assert [table.ttl_ms(i) for i in range(3)] == [500, 9, 8]
    assert admitted(block_of(f.PLAIN), "").ttl_ms(0) == TTL_NONE


def test_what_is_for_the_user_s_rights_is_flagged() -> None:
    table = admitted(block_of(f.PLAIN, f.properties(user_id=b"root")), "")
    assert [table.flags(i) & USER_ID for i in range(2)] == [0, USER_ID]


def test_five_million_empty_messages_are_refused_before_they_are_looked_at() -> None:
    """They came compressed in few bytes, and stalled the node for seconds."""
    count = 5_000_000
    head = b.encode([b""], [f.PLAIN], QUEUE)[:32]
    fields = list(struct.unpack("<4sBBBB6I", head))
    fields[5] = count
    with pytest.raises(errors.InvalidArgument, match=f"5000000 messages.*{BLOCK_MESSAGES_MAX}"):
        admitted(struct.pack("<4sBBBB6I", *fields), "")


def test_as_many_messages_as_a_block_may_have() -> None:
    most = b.encode([b""] * BLOCK_MESSAGES_MAX, [f.PLAIN] * BLOCK_MESSAGES_MAX, QUEUE)
    assert admitted(most, "").count == BLOCK_MESSAGES_MAX
    more = b.encode([b""] * (BLOCK_MESSAGES_MAX + 1), [f.PLAIN] * (BLOCK_MESSAGES_MAX + 1), QUEUE)
    with pytest.raises(errors.InvalidArgument, match="send several"):
        admitted(more, "")


def test_more_routes_than_messages_are_refused_unread() -> None:
    data = bytearray(block_of(f.PLAIN))
    struct.pack_into("<I", data, 20, BLOCK_MESSAGES_MAX + 1)
    with pytest.raises(errors.InvalidArgument, match="65537 routes"):
        admitted(bytes(data), "")


@pytest.mark.parametrize("column", ["properties", "body"])
def test_offsets_that_do_not_ascend(column: str) -> None:
    data = bytearray(block_of(f.PLAIN, f.PLAIN, f.PLAIN))
    at = 32 + 8 + (0 if column == "properties" else 16) + 4
    struct.pack_into("<I", data, at, 11 if column == "properties" else 9)
    struct.pack_into("<I", data, 12, zlib.crc32(data[32:]))
    with pytest.raises(errors.InvalidArgument, match=f"{column} offsets .* do not ascend"):
        admitted(bytes(data), "")


def test_many_keys_are_checked_in_many_turns() -> None:
    """Each had seconds of one turn: the keys of 65,536 messages are decoded and compared."""
    keys = f.table((b"CC", b"A" + _sized(b"".join(b"S" + _sized(b"%04x" % n) for n in range(400)))))
    raw = f.properties(headers=keys)
    count = 2_000
    steps, turns, before = Steps(0), 0, 0
    for _ in admit(block_of(*[raw] * count), "", *LIMITS, steps):
        assert steps.taken - before <= LOOKED_AT_ONCE * (LIMITS[1] // KEYED_BYTES_PER_STEP + 1)
        turns, before = turns + 1, steps.taken
    assert turns == count // LOOKED_AT_ONCE
    assert steps.taken >= count * len(raw) // KEYED_BYTES_PER_STEP


def _sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
