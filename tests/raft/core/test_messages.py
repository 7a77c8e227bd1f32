"""The codec of messages between members."""

from __future__ import annotations

import pytest

from warren_raft import messages as rpc
from warren_raft.errors import MalformedMessage
from warren_raft.types import EntryKind

HEAD = (2**64 - 1, "node-a", "node-b", 7)

EVERY: list[rpc.AnyRaftMessage] = [
    rpc.PreVote(*HEAD, 5, 6),
    rpc.PreVoteReply(*HEAD, True),
    rpc.Vote(*HEAD, 5, 6),
    rpc.VoteReply(*HEAD, False),
    rpc.Append(*HEAD, 5, 6, 4, ((7, EntryKind.COMMAND, 1_700_000_000_000, b"\x00\xff"),)),
    rpc.Append(*HEAD, 5, 6, 4),
    rpc.AppendReply(*HEAD, True, 9, 4),
    rpc.AppendReply(*HEAD, False, 9, 4, 3, 2),
    rpc.TimeoutNow(*HEAD),
    rpc.TimeoutNow(*HEAD, 2**64 - 1),
    rpc.PreVote(*HEAD, 5, 6, 2**64 - 1),
    rpc.Vote(*HEAD, 5, 6, 2**64 - 1, 9),
    rpc.VoteReply(*HEAD, True, 9),
    rpc.AppendReply(*HEAD, True, 9, 4, member=2**64 - 1),
    rpc.ReadIndexHeartbeatReply(*HEAD, 3, 2**64 - 1),
    rpc.ReadIndexHeartbeat(*HEAD, 3),
    rpc.ReadIndexHeartbeatReply(*HEAD, 3),
    rpc.ReadIndex(*HEAD, 2**63),
    rpc.ReadIndexReply(*HEAD, 2**63, 9),
]


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_there_and_back(message: rpc.AnyRaftMessage) -> None:
    again = rpc.decode(rpc.encode(message))
    assert again == message
    assert type(again) is type(message)


def test_a_frozen_sample() -> None:
    """These bytes are what every node of this version speaks."""
    sample = rpc.Append(1, "a", "b", 3, 4, 2, 1, ((3, EntryKind.NOOP, 5, b""),))
    assert rpc.encode(sample).hex() == "99a16101a161a1620304020191940300" + "05c400"


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_every_cut_is_refused(message: rpc.AnyRaftMessage) -> None:
    data = rpc.encode(message)
    for end in range(len(data)):
        with pytest.raises(MalformedMessage):
            rpc.decode(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc0",
        b"\x91\xa2zz",
        rpc.encode(rpc.PreVote(*HEAD, 5, 6)) + b"\x00",
        rpc.encode(rpc.Append(1, "a", "b", 3, 4, 2, 1)).replace(
            b"\x90", b"\x91\x94\x01\x09\x05\xc4\x00"
        ),
    ],
    ids=["empty", "nil", "unknown", "too long", "unknown entry kind"],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage, match="same version"):
        rpc.decode(data)
