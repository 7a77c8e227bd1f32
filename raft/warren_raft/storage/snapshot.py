"""A machine's state as a file, with what the log needs of it.

`snapshots/GROUP-INDEX.snap` (decimal, 20 digits each), framed as in `framed_file` with magic
`WARRNSNP` and version 1; the payload is a MessagePack array:

| field | what |
| --- | --- |
| group, index, term, time_ms | the entry up to which everything is in the state; unsigned |
| born | [batch, record]: of its GROUP_CREATED; distinguishes it from a later group of that number |
| version | in the form of which the state is (`versions`) |
| voters, learners | names of the members as of that entry |
| live | binary: the entries that the state refers to, at most `index`, packed by `index_set` |
| state | binary: the bytes of `Machine.snapshot` |
| ids | array of [name, member id] of the voters as of that entry with an id other than 0, sorted |
| base | [file, batch, record, last]: the last snapshot of another member that replaced |
| | this one's log was up to `last`; entries above it are void in WAL files below `file` |
| | and in records before (batch, record); zeros: there was none |
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from warren_raft.index_set import Indexes
from warren_raft.storage.format import Damaged, Data
from warren_raft.storage.framed_file import seal, unseal
from warren_raft.types import GroupId, Index, NodeId, Term, TimeMs
from warren_wire.undecodable import UNDECODABLE

MAGIC = b"WARRNSNP"
VERSION = 1
SUFFIX = ".snap"

Position = tuple[int, int]
"""(batch, record in the batch): a position in the write-ahead log, for comparison."""


class Base(NamedTuple):
    """The part of this log that another member's snapshot has voided; see the module."""

    file: int = 0
    batch: int = 0
    record: int = 0
    last: Index = 0


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """A snapshot; see the module."""

    group: GroupId
    index: Index
    term: Term
    time_ms: TimeMs
    born: Position
    version: int
    voters: tuple[NodeId, ...]
    learners: tuple[NodeId, ...]
    live: bytes
    state: bytes
    ids: tuple[tuple[NodeId, int], ...] = ()
    base: Base = Base()

    def live_indexes(self) -> Indexes:
        """The entries that must be retained."""
        return Indexes.read(self.live)


_DECODER = msgspec.msgpack.Decoder(Snapshot)


def file_name(group: GroupId, index: Index) -> str:
    """Return the name of a snapshot's file."""
    return f"{group:020d}-{index:020d}{SUFFIX}"


def file_key(name: str) -> tuple[GroupId, Index] | None:
    """Invert `file_name`; None for other names."""
    group, dash, index = name.removesuffix(SUFFIX).partition("-")
    if name.endswith(SUFFIX) and dash and group.isdigit() and index.isdigit():
        return int(group), int(index)
    return None


def encode(snapshot: Snapshot) -> bytes:
    """Encode the file."""
    return seal(MAGIC, VERSION, [msgspec.msgpack.encode(snapshot)])


def decode(file: Data) -> Snapshot:
    """Invert `encode`; raises Damaged."""
    try:
        snapshot = _DECODER.decode(unseal(MAGIC, VERSION, file))
    except UNDECODABLE as error:
        raise Damaged(f"its payload is not a snapshot ({error})") from None
    try:
        snapshot.live_indexes()
    except (ValueError, AssertionError) as error:
        raise Damaged(f"its list of live entries is invalid ({error})") from None
    return snapshot
