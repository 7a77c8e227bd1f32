"""The background writer's file operations: each is durable before the next one begins."""

from __future__ import annotations

import errno
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from warren_raft.storage.entry_index import Rows
from warren_raft.storage.errors import EntryDamaged, WriteFailed
from warren_raft.storage.files import Files
from warren_raft.storage.format import (
    ENTRY_RECORDS,
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    Damaged,
    Record,
    RecordKind,
    decode_record,
    encode_file_header,
    encode_record,
)
from warren_raft.storage.manifest import Manifest
from warren_raft.storage.manifest import encode as encode_manifest
from warren_raft.storage.segment import SegmentIndex, SegmentName
from warren_raft.storage.segment import encode as encode_index
from warren_raft.storage.snapshot import Position, Snapshot, file_name
from warren_raft.storage.snapshot import encode as encode_snapshot
from warren_raft.types import Entry, GroupId, Index
from warren_wire.checksum import crc32

WRITE_BYTES = 1 << 20
UNREADABLE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EIO)
"""A file that cannot be opened for one of these reasons is damaged as a whole."""


@dataclass(slots=True)
class Source:
    """The retained entries of one file.

    rows    (group, born, rows), the groups ascending
    healed  other members' copies of entries with a damaged record there
    """

    id: int
    path: Path
    salt: int
    rows: list[tuple[GroupId, Position, Rows]]
    healed: dict[tuple[GroupId, Index], Entry] = field(default_factory=dict)


@dataclass(slots=True)
class Target:
    """A segment to be made of sources; one source in place: only its index is written.

    offsets  filled by the rewrite: per source, per group of it, the new offset of each row
    damaged  filled by it: rows that could not be copied
    """

    name: SegmentName
    sources: list[Source]
    data: Path
    index: Path
    salt: int
    in_place: bool
    bytes: int = 0
    offsets: list[list[array[int]]] = field(default_factory=list)
    damaged: list[EntryDamaged] = field(default_factory=list)


def write_snapshots(files: Files, directory: Path, snapshots: list[Snapshot]) -> None:
    """Make each durable under its name; earlier ones stay."""
    for snapshot in snapshots:
        path = directory / file_name(snapshot.group, snapshot.index)
        files.write_whole(path, encode_snapshot(snapshot))


def prepare_manifest(files: Files, path: Path, manifest: Manifest) -> None:
    """Write the new manifest durably, beside the one in effect."""
    fd = files.open_write(_fresh(path))
    try:
        files.write_at(fd, 0, [encode_manifest(manifest)])
        files.sync_data(fd)
    finally:
        files.close(fd)


def put_manifest(files: Files, path: Path) -> None:
    """Replace the manifest by the prepared one; raises WriteFailed.

    It is unknown whether a failed rename was made, so even a full disk ends the node here.
    """
    try:
        files.rename(_fresh(path), path)
    except OSError as error:
        raise WriteFailed(path, error) from error


def take_back(files: Files, targets: list[Target]) -> None:
    """Remove the files of segments that nothing refers to yet."""
    for target in targets:
        own = () if target.in_place else (_fresh(target.data), target.data)
        for path in (_fresh(target.index), target.index, *own):
            if files.exists(path):
                files.remove(path)
        target.offsets.clear()


def _fresh(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def write_segment(files: Files, target: Target) -> None:
    """Write the data, then the index: a segment exists when its index does.

    A damaged record is recorded in `damaged`; the segment is not made then.
    """
    if not target.in_place:
        _write_data(files, target)
        if target.damaged:
            return
    groups: dict[tuple[GroupId, Position], Rows] = {}
    for at, source in enumerate(target.sources):
        for number, (group, born, rows) in enumerate(source.rows):
            into = groups.setdefault((group, born), Rows())
            into.indexes.extend(rows.indexes)
            into.terms.extend(rows.terms)
            into.lengths.extend(rows.lengths)
            into.configs.extend(rows.configs)
            into.offsets.extend(rows.offsets if target.in_place else target.offsets[at][number])
    index = SegmentIndex(
        target.name,
        target.in_place,
        target.bytes,
        target.salt,
        tuple((group, born, groups[group, born]) for group, born in sorted(groups)),
    )
    files.write_whole(target.index, encode_index(index))


def _write_data(files: Files, target: Target) -> None:
    fresh = _fresh(target.data)
    out = files.open_write(fresh)
    try:
        buffers: list[bytes | memoryview] = [encode_file_header(target.name.last, target.salt, 0)]
        offset, written, waiting = FILE_HEADER_BYTES, 0, FILE_HEADER_BYTES
        for source in target.sources:
            with _reading(files, source.path) as reader:
                offsets = []
                for group, _, rows in source.rows:
                    column = array("I")
                    for at in range(len(rows)):
                        try:
                            header, data = _copy(files, reader, source, group, rows, at, target)
                        except EntryDamaged as damage:
                            target.damaged.append(damage)
                            continue
                        column.append(offset)
                        offset += len(header) + len(data)
                        waiting += len(header) + len(data)
                        buffers += (header, data)
                        if waiting >= WRITE_BYTES:
                            files.write_at(out, written, buffers)
                            written, waiting, buffers = offset, 0, []
                    offsets.append(column)
                target.offsets.append(offsets)
        if target.damaged:
            return
        files.write_at(out, written, buffers)
        files.sync_data(out)
        target.bytes = offset
    finally:
        files.close(out)
    files.rename(fresh, target.data)


@contextmanager
def _reading(files: Files, path: Path) -> Iterator[int | OSError]:
    """Open a file for `_read`, which finds every entry in it damaged where it cannot be opened.

    1. A segment is removed by hand, or its name is lost with a damaged directory.  2. Most of it is
    dead, so it is rewritten.  3. If that ended the node, it would take a start to notice what the
    other members can repair. Replayed by tests/raft/runtime/test_removed_files.py
    """
    try:
        fd = files.open_read(path)
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        yield error
        return
    try:
        yield fd
    finally:
        files.close(fd)


def damaged_rows(files: Files, source: Source) -> list[EntryDamaged]:
    """Return the rows of a source that cannot be read."""
    found = []
    with _reading(files, source.path) as reader:
        for group, _, rows in source.rows:
            for at in range(len(rows)):
                try:
                    _read(files, reader, source, group, rows, at)
                except EntryDamaged as damage:
                    found.append(damage)
    return found


def _read(
    files: Files, reader: int | OSError, source: Source, group: GroupId, rows: Rows, at: int
) -> Record:
    index, offset = rows.indexes[at], rows.offsets[at]
    try:
        if isinstance(reader, OSError):
            raise reader
        data = files.read_at(reader, offset, RECORD_HEADER_BYTES + rows.lengths[at])
        record = decode_record(source.salt, memoryview(data), 0)
        named = record.group, record.index
        if named != (group, index) or record.kind not in ENTRY_RECORDS:
            raise Damaged(f"it is not entry {index} of group {group}")
    except (Damaged, OSError) as damage:
        raise EntryDamaged(
            source.path, offset, str(damage), group, index, rows.terms[at], source.id
        ) from None
    return record


def _copy(
    files: Files,
    reader: int | OSError,
    source: Source,
    group: GroupId,
    rows: Rows,
    at: int,
    target: Target,
) -> tuple[bytes, bytes | memoryview]:
    batch, kind = 0, RecordKind.ENTRY
    entry: Record | Entry
    try:
        entry = _read(files, reader, source, group, rows, at)
        batch, kind, entry_kind = entry.batch, entry.kind, entry.entry_kind
    except EntryDamaged:
        healed = source.healed.get((group, rows.indexes[at]))
        if healed is None:
            raise
        entry, entry_kind = healed, int(healed.kind)
    header = encode_record(
        target.salt,
        batch,
        kind,
        group,
        entry.index,
        entry.term,
        entry.data,
        entry_kind,
        entry.time_ms,
    )
    return header, entry.data


def salt_of(name: SegmentName) -> int:
    """Return a segment's salt: not random, because no bytes of it are ever searched for records.

    Two files that follow each other still differ.
    """
    return crc32(name.stem().encode())
