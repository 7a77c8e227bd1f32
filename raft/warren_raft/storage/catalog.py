"""The files beside the write-ahead log at a start: manifest, segments, snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from warren_raft.storage import manifest, segment, snapshot, wal
from warren_raft.storage.errors import LogDamaged, LogOfOtherVersion
from warren_raft.storage.files import Files, is_bad_medium
from warren_raft.storage.format import Damaged, Data, OtherVersion
from warren_raft.storage.identity import Directory
from warren_raft.storage.manifest import Manifest
from warren_raft.storage.segment import ID_BASE, SegmentIndex, SegmentName
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import GroupId, Index

T = TypeVar("T")


def damaged(path: Path, offset: int, damage: Damaged) -> LogDamaged:
    """Return the error to raise for bytes of that file that cannot be read."""
    kind = LogOfOtherVersion if isinstance(damage, OtherVersion) else LogDamaged
    return kind(path, offset, str(damage))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise LogDamaged for that file where the disk cannot read it, or a directory has its name.

    1. A sector of a file of the log goes bad, which a disk reports, other than a flipped bit.
    2. The node restarts, and cannot read the file.  3. If that ended the node, each start would end
    there, although the other members can repair it. Other errors, as of permissions, end the start,
    and name the file.
    """
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        if isinstance(error, IsADirectoryError):
            raise LogDamaged(path, 0, "it is a directory") from error
        if not is_bad_medium(error):
            raise
        raise LogDamaged(path, 0, f"the disk cannot read it: {error.strerror}") from error


@dataclass(slots=True)
class Segment:
    """One segment of this node.

    id     its number in `Place`; that of the WAL file when it is sealed in place
    data   the data file; index: the index file
    bytes  length of the data file
    """

    id: int
    name: SegmentName
    in_place: bool
    data: Path
    index: Path
    salt: int
    bytes: int
    groups: set[GroupId]


@dataclass(slots=True)
class Catalog:
    """The contents of these files; reading them changes nothing.

    rows      per segment, in their order: the index
    broken    snapshots that are damaged, identified by their names
    leftovers files that a crash left, to be removed when the log has been read
    """

    manifest: Manifest = field(default_factory=Manifest)
    segments: list[Segment] = field(default_factory=list)
    rows: list[SegmentIndex] = field(default_factory=list)
    snapshots: dict[GroupId, list[tuple[Path, Snapshot]]] = field(default_factory=dict)
    broken: dict[GroupId, list[tuple[Index, LogDamaged]]] = field(default_factory=dict)
    leftovers: list[Path] = field(default_factory=list)
    next_segment: int = ID_BASE

    def snapshot_of(self, group: GroupId, born: tuple[int, int]) -> Snapshot | None:
        """Return the newest snapshot of the group that was created at `born`."""
        found = [s for _, s in self.snapshots.get(group, ()) if s.born == born]
        return max(found, key=lambda s: s.index, default=None)


def _decoded(files: Files, path: Path, decode: Callable[[Data], T]) -> T:
    try:
        with reading(path):
            return decode(files.read(path))
    except Damaged as damage:
        raise damaged(path, 0, damage) from None


def read_catalog(files: Files, directory: Directory) -> Catalog:
    """Read everything but the log; raises LogDamaged."""
    catalog = Catalog()
    path = directory.path / manifest.NAME
    if files.exists(path):
        catalog.manifest = _decoded(files, path, manifest.decode)
        disk = catalog.manifest.disk
        if disk != int(directory.identity.disk, 16):
            raise LogDamaged(
                path, 0, f"it was written for disk {disk:016x}, this is {directory.identity.disk}"
            )
    _read_snapshots(files, directory, catalog)
    _read_segments(files, directory, catalog)
    for parent in (directory.path, directory.segments, directory.snapshots):
        names = files.names(parent)
        catalog.leftovers += [parent / name for name in names if name.endswith(".new")]
    in_place = {s.id for s in catalog.segments if s.in_place}
    for name in files.names(directory.wal):
        number = wal.file_number(name)
        if number is not None and number < catalog.manifest.first_file and number not in in_place:
            catalog.leftovers.append(directory.wal / name)
    return catalog


def _read_snapshots(files: Files, directory: Directory, catalog: Catalog) -> None:
    for name in files.names(directory.snapshots):
        key = snapshot.file_key(name)
        if key is None:
            continue
        path = directory.snapshots / name
        try:
            found = _decoded(files, path, snapshot.decode)
            if (found.group, found.index) != key:
                raise LogDamaged(path, 0, f"it is snapshot {found.index} of group {found.group}")
        except LogOfOtherVersion:
            raise
        except LogDamaged as damage:
            catalog.broken.setdefault(key[0], []).append((key[1], damage))
            continue
        catalog.snapshots.setdefault(found.group, []).append((path, found))


def _read_segments(files: Files, directory: Directory, catalog: Catalog) -> None:
    names = files.names(directory.segments)
    indexes = {name: segment.parse_name(name, segment.INDEX_SUFFIX) for name in names}
    found = [name for name in indexes.values() if name is not None]
    first_file = catalog.manifest.first_file
    valid = []
    for name in sorted(found, key=lambda n: (n.first, n.last, n.generation)):
        # Segments of files that are still to be replayed were not finished; and of two that cover
        # the same files the later one is complete, because its index is written last.
        covered = any(
            o.first <= name.first and name.last <= o.last and o.generation > name.generation
            for o in found
            if o.last < first_file
        )
        if name.last >= first_file or covered:
            catalog.leftovers.append(directory.segments / (name.stem() + segment.INDEX_SUFFIX))
        else:
            valid.append(name)
    for name in valid:
        _read_segment(files, directory, catalog, name)
    data = {s.data.name for s in catalog.segments}
    for entry in names:
        if entry.endswith(segment.DATA_SUFFIX) and entry not in data:
            catalog.leftovers.append(directory.segments / entry)


def _read_segment(files: Files, directory: Directory, catalog: Catalog, name: SegmentName) -> None:
    path = directory.segments / (name.stem() + segment.INDEX_SUFFIX)
    index = _decoded(files, path, segment.decode)
    if index.name != name:
        raise LogDamaged(path, 0, f"it is the index of {index.name.stem()} under another name")
    if index.in_place:
        data, identity = directory.wal / wal.file_name(name.first), name.first
    else:
        data = directory.segments / (name.stem() + segment.DATA_SUFFIX)
        identity = catalog.next_segment
        catalog.next_segment += 1
    if not files.exists(data):
        raise LogDamaged(path, 0, f"its data file {data} is missing")
    size = files.size(data)
    if size < index.data_bytes:
        raise LogDamaged(data, size, f"{path.name} tells of {index.data_bytes} bytes")
    groups = {group for group, _, _ in index.groups}
    catalog.segments.append(
        Segment(identity, name, index.in_place, data, path, index.salt, index.data_bytes, groups)
    )
    catalog.rows.append(index)
