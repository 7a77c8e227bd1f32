"""Metadata submissions and replies as bytes: plain MessagePack."""

from __future__ import annotations

from typing import Final

import msgspec

from warren_machines.metadata.commands import (
    AnyCommand,
    MetadataSubmission,
    MetadataSubmissionReply,
)
from warren_machines.queue.commands import UplinkId
from warren_machines.submission_version import check_undecodable, check_version
from warren_raft.versions import NEWEST
from warren_wire.undecodable import UNDECODABLE

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_SUBMISSIONS: Final = msgspec.msgpack.Decoder(MetadataSubmission)
_REPLIES: Final = msgspec.msgpack.Decoder(MetadataSubmissionReply)


class MalformedMetadata(ValueError):
    """Malformed submission or reply bytes; the machine ignores such an entry on every member."""


def encode_submission(
    uplink: UplinkId, node: str, seq: int, commands: tuple[AnyCommand, ...], version: int
) -> bytes:
    """Encode an entry of the metadata group's log."""
    return _ENCODER.encode(MetadataSubmission(uplink, node, seq, commands, version))


def decode_submission(data: bytes | memoryview, newest: int = NEWEST) -> MetadataSubmission:
    """Decode an entry; raises MalformedMetadata, or VersionNeeded for one of a later version."""
    try:
        submission = _SUBMISSIONS.decode(data)
    except UNDECODABLE as error:
        check_undecodable(data, newest)
        raise MalformedMetadata(f"entry of {len(data)} bytes: {error}") from error
    check_version(submission.version, newest)
    return submission


def encode_reply(reply: MetadataSubmissionReply) -> bytes:
    """Encode a reply for the submitting node."""
    return _ENCODER.encode(reply)


def decode_reply(data: bytes | memoryview) -> MetadataSubmissionReply:
    """Decode a reply; raises MalformedMetadata."""
    try:
        return _REPLIES.decode(data)
    except UNDECODABLE as error:
        raise MalformedMetadata(f"reply of {len(data)} bytes: {error}") from error
