"""The codec of messages between members."""

from __future__ import annotations

import pytest

from warren_raft.errors import MalformedMessage
from warren_raft.messages import (
    AnyRaftMessage,
    Append,
    AppendReply,
    Confirm,
    ConfirmReply,
    PreVote,
    PreVoteReply,
    ReadIndex,
    ReadIndexReply,
    TimeoutNow,
    Vote,
    VoteReply,
    decode,
    encode,
)
from warren_raft.types import EntryKind

HEAD = (2**64 - 1, "node-a", "node-b", 7)

EVERY: list[AnyRaftMessage] = [
    PreVote(*HEAD, 5, 6),
    PreVoteReply(*HEAD, True),
    Vote(*HEAD, 5, 6),
    VoteReply(*HEAD, False),
    Append(*HEAD, 5, 6, 4, ((7, EntryKind.COMMAND, 1_700_000_000_000, b"\x00\xff"),)),
    Append(*HEAD, 5, 6, 4),
    AppendReply(*HEAD, True, 9, 4),
    AppendReply(*HEAD, False, 9, 4, 3, 2),
    TimeoutNow(*HEAD),
    TimeoutNow(*HEAD, 2**64 - 1),
    PreVote(*HEAD, 5, 6, 2**64 - 1),
    Vote(*HEAD, 5, 6, 2**64 - 1, 9),
    VoteReply(*HEAD, True, 9),
    AppendReply(*HEAD, True, 9, 4, member=2**64 - 1),
    ConfirmReply(*HEAD, 3, 2**64 - 1),
    Confirm(*HEAD, 3),
    ConfirmReply(*HEAD, 3),
    ReadIndex(*HEAD, 2**63),
    ReadIndexReply(*HEAD, 2**63, 9),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_there_and_back(message: AnyRaftMessage) -> None:
    again = decode(encode(message))
    assert again == message
    assert type(again) is type(message)


def test_a_frozen_sample() -> None:
    """These bytes are what every node of this version speaks."""
    sample = Append(1, "a", "b", 3, 4, 2, 1, ((3, EntryKind.NOOP, 5, b""),))
    assert encode(sample).hex() == "99a16101a161a1620304020191940300" + "05c400"


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_every_cut_is_refused(message: AnyRaftMessage) -> None:
    data = encode(message)
    for end in range(len(data)):
        with pytest.raises(MalformedMessage):
            decode(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        b"\x91\xa2zz",
        encode(PreVote(*HEAD, 5, 6)) + b"\x00",
        encode(Append(1, "a", "b", 3, 4, 2, 1)).replace(b"\x90", b"\x91\x94\x01\x09\x05\xc4\x00"),
    ],
    ids=["empty", "nil", "unknown", "too long", "unknown entry kind"],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="same version"):
        decode(data)
