"""Messages between the brokers of a cluster, beside Raft's own.

A message on the peer connection is `u32 header length | MessagePack header | blobs`; the header is
one of the structs below and says how long each blob is. Little-endian.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

import msgspec

from warren_broker.queue.commands import (
    ConsumerId,
    Delivery,
    StatReply,
    SubmissionReply,
    UplinkId,
)
from warren_broker.queue.effects import CancelConsumer, Drained
from warren_raft.errors import PeerError

_LENGTH = struct.Struct("<I")
HEADER_BYTES_MAX = 64 * 1024 * 1024


class PeerMessage(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The parent of all messages between brokers."""


class Numbered(PeerMessage, frozen=True, array_like=True):
    """A question between brokers, or the answer to it: both carry the asker's number."""

    request: int


class Submit(PeerMessage, frozen=True, array_like=True, tag="submit"):
    """Propose the blob (an encoded submission) in that group."""

    group: int
    seq: int
    length: int


class LeaderIsElsewhere(PeerMessage, frozen=True, array_like=True, tag="not_leader"):
    """A submission came to a node that does not lead the group.

    leader  the node that may lead, as of `term`; None: unknown
    """

    group: int
    leader: str | None
    term: int


class LeaderIs(PeerMessage, frozen=True, array_like=True, tag="leader_is"):
    """The sender leads the group since `term`."""

    group: int
    term: int


class WhoLeads(PeerMessage, frozen=True, array_like=True, tag="who_leads"):
    """Who leads answers LeaderIs; a member that follows another one passes the question on.

    passed_on  the sender takes the receiver for the leader: LeaderIsElsewhere, when it is not
    """

    group: int
    passed_on: bool = False


class Short(PeerMessage, frozen=True, array_like=True, tag="short"):
    """Resources that the sender is low on; every node blocks its publishers meanwhile."""

    reasons: tuple[str, ...]


class Replied(PeerMessage, frozen=True, array_like=True, tag="replied"):
    """A submission was applied at `index`, or has a gap before it."""

    group: int
    index: int
    reply: SubmissionReply


class MetadataReplied(PeerMessage, frozen=True, array_like=True, tag="metadata_replied"):
    """The same from the metadata group; `reply` is an encoded metadata reply."""

    index: int
    reply: bytes


class Delivered(PeerMessage, frozen=True, array_like=True, tag="delivered"):
    """Messages for a consumer of the receiver.

    terms    of the entries of those deliveries that the receiver holds itself; 0 for the others
    lengths  of the blobs: the blocks of the others, in order, each cut to its delivery's range
    """

    group: int
    uplink: UplinkId
    consumer: ConsumerId
    deliveries: tuple[Delivery, ...]
    terms: tuple[int, ...]
    lengths: tuple[int, ...]


class Got(PeerMessage, frozen=True, array_like=True, tag="got"):
    """Bodies for the answer to a `Get`, sent ahead of `Replied`; the blob is the message's
    block."""

    group: int
    index: int
    ordinal: int
    length: int


class ConsumerCancelled(PeerMessage, frozen=True, array_like=True, tag="cancelled"):
    """A consumer of the receiver is one no longer."""

    group: int
    effect: CancelConsumer


class LinkDrained(PeerMessage, frozen=True, array_like=True, tag="drained"):
    """A consumer of the receiver was drained."""

    group: int
    effect: Drained


class ReadRuns(Numbered, frozen=True, array_like=True, tag="read_runs"):
    """Which messages: positions first <= i < last of a claim, or (reader empty) of what is
    ready."""

    group: int
    reader: str
    number: int
    first: int
    last: int


class RunsAre(Numbered, frozen=True, array_like=True, tag="runs"):
    """The answer: (index, first, last, delivery_count, acquired_count), closed, in order."""

    runs: tuple[tuple[int, int, int, int, int], ...]


class ReadBlock(Numbered, frozen=True, array_like=True, tag="read_block"):
    """Some of these messages, from the front, as one block of about max_bytes, at least one
    message."""

    group: int
    runs: tuple[tuple[int, int, int, int, int], ...]
    max_bytes: int


class BlockIs(Numbered, frozen=True, array_like=True, tag="block"):
    """The answer: the blob is a block of the first `messages` messages."""

    messages: int
    length: int


class ReadRefused(Numbered, frozen=True, array_like=True, tag="read_refused"):
    """A read that cannot be answered here; retry: another member, or later, may."""

    retry: bool
    detail: str


class QueueCounts(Numbered, frozen=True, array_like=True, tag="counts"):
    """Ask a leader for its counts without writing to the log."""

    group: int


class CountsAre(Numbered, frozen=True, array_like=True, tag="counts_are"):
    """The answer to QueueCounts."""

    stat: StatReply
    set_aside: int = 0


class MessagesSetAside(PeerMessage, frozen=True, array_like=True, tag="set_aside"):
    """To a queue's leader: so many of its messages could not be handled on the sender's node."""

    group: int
    count: int


class ReplyFor(PeerMessage, frozen=True, array_like=True, tag="reply_for"):
    """A message for a consumer of amq.rabbitmq.reply-to; the blob is its block."""

    name: str
    length: int


class HaveYouSeen(Numbered, frozen=True, array_like=True, tag="have_you_seen"):
    """Answer HasSeen when you have applied that index of the metadata group."""

    index: int


class HasSeen(Numbered, frozen=True, array_like=True, tag="has_seen"):
    """The sender has applied it."""


class Join(PeerMessage, frozen=True, array_like=True, tag="join"):
    """A node that does not know the definitions yet wants to be one of the cluster's.

    passed_on  it comes from a node that does not lead the metadata group
    """

    node: str
    disk: int
    address: str
    passed_on: bool = False


class AskMembers(Numbered, frozen=True, array_like=True, tag="ask_members"):
    """How do these groups stand, as far as you lead them?"""

    groups: tuple[int, ...]


class MemberFacts(msgspec.Struct, frozen=True, array_like=True):
    """A member as its leader sees it; fields as in `warren_raft.types.MemberState`."""

    node: str
    voter: bool
    leader: bool
    match: int
    suspected: bool
    snapshotting: bool
    lost: bool
    probing: bool = False
    sent_bytes: int = 0
    total_bytes: int = 0


class GroupFacts(msgspec.Struct, frozen=True, array_like=True):
    """A group as its leader sees it."""

    group: int
    term: int
    last: int
    commit: int
    members: tuple[MemberFacts, ...]


class MembersAre(Numbered, frozen=True, array_like=True, tag="members_are"):
    """The answer to AskMembers; groups that the sender does not lead are missing."""

    facts: tuple[GroupFacts, ...]


class AskLed(Numbered, frozen=True, array_like=True, tag="ask_led"):
    """Which groups do you lead? Which of them would lose their majority if `stopping` stopped?"""

    stopping: str


class LedAre(Numbered, frozen=True, array_like=True, tag="led_are"):
    """The answer to AskLed.

    led        every group that the sender leads, ascending
    critical   those of them that would lose their majority
    unsettled  those of them with other members than wanted
    """

    led: tuple[int, ...]
    critical: tuple[int, ...]
    unsettled: tuple[GroupFacts, ...]


class HandOver(PeerMessage, frozen=True, array_like=True, tag="hand_over"):
    """Make that node the leader of a group that the receiver leads."""

    group: int
    to: str


AnyPeerMessage: TypeAlias = (
    Submit
    | LeaderIsElsewhere
    | LeaderIs
    | WhoLeads
    | Short
    | Replied
    | MetadataReplied
    | Delivered
    | Got
    | ConsumerCancelled
    | LinkDrained
    | ReadRuns
    | RunsAre
    | ReadBlock
    | BlockIs
    | ReadRefused
    | QueueCounts
    | CountsAre
    | MessagesSetAside
    | ReplyFor
    | HaveYouSeen
    | HasSeen
    | Join
    | AskMembers
    | MembersAre
    | AskLed
    | LedAre
    | HandOver
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[AnyPeerMessage] = msgspec.msgpack.Decoder(AnyPeerMessage)


class MalformedPeerMessage(PeerError):
    """Bytes from another node that are not a peer message; its connection is closed."""


def encode(message: AnyPeerMessage, *blobs: bytes | memoryview) -> list[bytes | memoryview]:
    """The buffers of a message, to be written one after the other."""
    header = _ENCODER.encode(message)
    return [_LENGTH.pack(len(header)) + header, *blobs]


def decode(data: bytes | memoryview) -> tuple[AnyPeerMessage, memoryview]:
    """The message and the bytes after its header; raises MalformedPeerMessage."""
    view = memoryview(data)
    if len(view) < _LENGTH.size:
        raise MalformedPeerMessage(f"{len(view)} bytes are less than a header's length field")
    (length,) = _LENGTH.unpack_from(view)
    if length > min(len(view) - _LENGTH.size, HEADER_BYTES_MAX):
        raise MalformedPeerMessage(f"header of {length} bytes in a message of {len(view)}")
    end = _LENGTH.size + length
    try:
        return _DECODER.decode(view[_LENGTH.size : end]), view[end:]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedPeerMessage(str(error)) from error


def cut(blobs: memoryview, lengths: tuple[int, ...]) -> list[memoryview]:
    """Split the bytes after a header by the lengths it names; raises MalformedPeerMessage."""
    parts, start = [], 0
    for length in lengths:
        if length < 0 or start + length > len(blobs):
            raise MalformedPeerMessage(f"blob of {length} bytes at {start} in {len(blobs)}")
        parts.append(blobs[start : start + length])
        start += length
    return parts
