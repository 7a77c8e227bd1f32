"""Metadata submissions and replies as bytes: plain MessagePack."""

from __future__ import annotations

from typing import Final

import msgspec

from warren_machines.metadata.commands import (
    VERSION,
    AnyCommand,
    MetadataSubmission,
    MetadataSubmissionReply,
)
from warren_machines.queue.commands import UplinkId
from warren_wire.undecodable import UNDECODABLE

_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_SUBMISSIONS: Final = msgspec.msgpack.Decoder(MetadataSubmission)
_REPLIES: Final = msgspec.msgpack.Decoder(MetadataSubmissionReply)


class MalformedMetadata(ValueError):
    """Malformed submission or reply bytes; the machine ignores such an entry on every member."""


def encode_submission(
    uplink: UplinkId, node: str, seq: int, commands: tuple[AnyCommand, ...]
) -> bytes:
    """Encode an entry of the metadata group's log."""
    return _ENCODER.encode(MetadataSubmission(uplink, node, seq, commands, VERSION))


def decode_submission(data: bytes | memoryview) -> MetadataSubmission:
    """Decode an entry; raises MalformedMetadata."""
    try:
        return _SUBMISSIONS.decode(data)
    except UNDECODABLE as error:
        raise MalformedMetadata(f"entry of {len(data)} bytes: {error}") from error


def encode_reply(reply: MetadataSubmissionReply) -> bytes:
    """Encode a reply for the submitting node."""
    return _ENCODER.encode(reply)


def decode_reply(data: bytes | memoryview) -> MetadataSubmissionReply:
    """Decode a reply; raises MalformedMetadata."""
    try:
        return _REPLIES.decode(data)
    except UNDECODABLE as error:
        raise MalformedMetadata(f"reply of {len(data)} bytes: {error}") from error
