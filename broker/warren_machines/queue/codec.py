"""The bytes of an entry: `u32 little-endian length | MessagePack Submission | block or nothing`."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from warren_machines.queue.commands import Submission
from warren_machines.submission_version import check_undecodable, check_version
from warren_raft.versions import NEWEST
from warren_wire.undecodable import UNDECODABLE

_LENGTH: Final = struct.Struct("<I")
LENGTH_BYTES: Final = _LENGTH.size
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Submission)


class MalformedEntry(ValueError):
    """An entry that does not decode as a submission.

    No client can cause it; every member ignores it.
    """


def encode_submission(submission: Submission, block: bytes | memoryview | None = None) -> bytes:
    """Encode a submission and its block as an entry's data.

    block  the block of the submission's Enqueue, SinkStage or Stage; None or empty: there is none
    """
    head = _ENCODER.encode(submission)
    return b"".join((_LENGTH.pack(len(head)), head, block or b""))


def decode_submission(
    data: bytes | memoryview, newest: int = NEWEST
) -> tuple[Submission, memoryview | None]:
    """Return the submission and a view of its block, which is not copied; None: there is no block.

    Raises MalformedEntry, or VersionNeeded for one of a version above `newest`.
    """
    view = memoryview(data)
    size = len(view)
    if size < _LENGTH.size:
        raise MalformedEntry(f"entry of {size} bytes: needs at least {_LENGTH.size}")
    start = block_offset(view)
    if start > size:
        raise MalformedEntry(f"entry of {size} bytes: its submission ends at {start}")
    try:
        submission = _DECODER.decode(view[_LENGTH.size : start])
    except UNDECODABLE as error:
        check_undecodable(view[_LENGTH.size : start], newest)
        raise MalformedEntry(f"entry of {size} bytes: {error}") from error
    check_version(submission.version, newest)
    return submission, (view[start:] if start < size else None)


def block_offset(data: bytes | memoryview) -> int:
    """Return the offset of an entry's block; the entry's length when it has none."""
    length: int = _LENGTH.unpack_from(data)[0]
    return _LENGTH.size + length
