"""The codec of messages between members."""

from __future__ import annotations

import pytest

from warren_raft import messages as rpc
from warren_raft.runtime.net import codec
from warren_raft.types import EntryKind


def encode(message: rpc.AnyRaftMessage) -> bytes:
    """Return the body of a frame with one message."""
    return b"".join(codec.encode_raft([message]))[codec.FRAME_HEADER_BYTES :]


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
    (again,) = codec.decode_raft(memoryview(encode(message)))
    assert again == message
    assert type(again) is type(message)


def test_a_frozen_sample() -> None:
    """These bytes are what every node of this version speaks."""
    sample = rpc.Append(1, "a", "b", 3, 4, 2, 1, ((3, EntryKind.NOOP, 5, b"data"),))
    assert encode(sample).hex() == "15000000919299a16101a161a162030402019091940300050464617461"


@pytest.mark.parametrize("message", EVERY, ids=lambda message: type(message).__name__)
def test_every_cut_is_refused(message: rpc.AnyRaftMessage) -> None:
    data = encode(message)
    for end in range(len(data)):
        with pytest.raises(codec.BadFrame):
            codec.decode_raft(memoryview(data)[:end])


def headed(header: bytes) -> bytes:
    """A body that is only a header."""
    return len(header).to_bytes(4, "little") + header


@pytest.mark.parametrize(
    "data",
    [
        b"",
        headed(b""),
        headed(b"\xc0"),
        headed(b"\x91\x92\x91\xa2zz\x90"),
        encode(rpc.PreVote(*HEAD, 5, 6)) + b"\x00",
        encode(rpc.Append(1, "a", "b", 3, 4, 2, 1, ((3, EntryKind.NOOP, 5, b""),))).replace(
            b"\x94\x03\x00\x05", b"\x94\x03\x09\x05"
        ),
    ],
    ids=["nothing", "empty", "nil", "unknown", "too long", "unknown entry kind"],
)
def test_nonsense_is_refused(data: bytes) -> None:
    with pytest.raises(codec.BadFrame, match="look at the memory and the network"):
        codec.decode_raft(memoryview(data))
