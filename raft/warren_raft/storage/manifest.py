"""The manifest: the groups' state as of the log files that were removed.

`groups.manifest`, framed as in `framed_file` with magic `WARRNGRP` and version 1; the payload is a
MessagePack array:

| field | what |
| --- | --- |
| first_file | number of the oldest WAL file that must be replayed |
| position | [batch, record]: every record before it is reflected here |
| groups | array of [group, born, created, term, vote, last, held], ascending |
| disk | the directory id (`identity`) that it was written for |

groups lists each group that existed then. born is the position of its GROUP_CREATED, created its
data; vote "" is none; last is the end of the group's log: what segments have above it was replaced
by a shorter log. held is the last entry that was written before `position`: `last`, or 0 while
another member's snapshot may be about to replace the log. It is written only when everything before
`position` is on disk, and replaces the earlier one by a rename.
"""

from __future__ import annotations

import msgspec

from warren_raft.storage.format import Damaged, Data
from warren_raft.storage.framed_file import seal, unseal
from warren_raft.storage.snapshot import Position
from warren_raft.types import GroupId, Index, NodeId, Term
from warren_wire.undecodable import UNDECODABLE

MAGIC = b"WARRNGRP"
VERSION = 1
NAME = "groups.manifest"


class GroupRow(msgspec.Struct, frozen=True, array_like=True):
    """The manifest's row of one group; see the module."""

    group: GroupId
    born: Position
    created: bytes
    term: Term
    vote: NodeId
    last: Index
    held: Index


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """The manifest; see the module. The default is that of a directory without one."""

    first_file: int = 0
    position: Position = (0, 0)
    groups: tuple[GroupRow, ...] = ()
    disk: int = 0


_DECODER = msgspec.msgpack.Decoder(Manifest)


def encode(manifest: Manifest) -> bytes:
    """Encode the file."""
    return seal(MAGIC, VERSION, [msgspec.msgpack.encode(manifest)])


def decode(file: Data) -> Manifest:
    """Invert `encode`; raises Damaged."""
    try:
        return _DECODER.decode(unseal(MAGIC, VERSION, file))
    except UNDECODABLE as error:
        raise Damaged(f"its payload is no list of groups ({error})") from None
