"""The version of a submission, whichever machine it is for: a later one ends the node."""

from __future__ import annotations

import msgspec

from warren_raft.versions import OLDEST, VersionNeeded, Versions
from warren_wire.undecodable import UNDECODABLE


class _SubmissionHead(msgspec.Struct, array_like=True):
    """What the submissions of both machines begin with, in every version."""

    uplink: msgspec.Raw
    node: msgspec.Raw
    seq: msgspec.Raw
    commands: msgspec.Raw
    version: int


_SUBMISSION_HEADS = msgspec.msgpack.Decoder(_SubmissionHead)


def check_version(version: int, newest: int) -> None:
    """Raise VersionNeeded for a version above the newest that this program has."""
    if version > newest:
        raise VersionNeeded("an entry of a log", version, Versions(OLDEST, newest))


def check_undecodable(data: bytes | memoryview, newest: int) -> None:
    """Raise VersionNeeded if what does not decode is of a later version.

    1. A member skips a command that it does not know.  2. Another one carries it out.  3. The
    states differ, and each is confirmed to clients. What is of no version, every member skips.
    """
    try:
        head = _SUBMISSION_HEADS.decode(data)
    except UNDECODABLE:
        return
    check_version(head.version, newest)
