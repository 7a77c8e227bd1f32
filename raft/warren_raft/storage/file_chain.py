"""Detection of missing log files: each names the one before it, and `synced` names the newest.

| missing, replaced or shorter | detected by |
| --- | --- |
| a file that another one follows | the LINK of that one: salt, and where its records end |
| the newest file | `wal/synced` and `synced`: number, salt, and minimum length |
| the oldest file that is to be replayed | its number: that of the manifest's first file |
| `wal/synced` and `synced`, both | `node.json`: logged |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.format import Head, Link
from warren_raft.storage.identity import Directory
from warren_raft.storage.synced_mark import NAME, SyncedMark
from warren_raft.storage.wal import file_name


@dataclass(frozen=True, slots=True)
class Chain:
    """The files to be replayed.

    numbers  ascending
    heads     the head of each
    ends     where the records end in each file that another one follows; absent: at the file's end
    synced    the bytes of the newest file that were on disk
    """

    numbers: Sequence[int]
    heads: Mapping[int, Head]
    ends: Mapping[int, int]
    synced: int

    def link(self, disk: int, next_file: int, end: int) -> Link:
        """Return the link of `next_file` to the newest of these, with records up to `end`."""
        head = self.heads.get(next_file - 1)
        return Link(disk) if head is None else Link(disk, head.salt, end)


def verify(
    directory: Directory, heads: Mapping[int, Head], first_file: int, marks: Sequence[SyncedMark]
) -> Chain:
    """Raise LogDamaged when a file is missing or was replaced.

    heads       of the files from first_file on
    first_file  of the manifest; 0: there is no manifest
    marks       the marks of the newest file, newest first
    """
    numbers = sorted(heads)
    disk = int(directory.identity.disk, 16)
    ends: dict[int, int] = {}
    for before, number in zip([None, *numbers], numbers, strict=False):
        link = heads[number].link
        path = directory.wal / file_name(number)
        if link.disk != disk:
            raise LogDamaged(
                path, 0, f"it was written for disk {link.disk:016x}, this is {disk:016x}"
            )
        if before is None:
            _begins(directory, path, number, max(first_file, 1))
        elif before != number - 1:
            raise _missing(directory, number - 1, path)
        elif link.salt:
            if link.salt != heads[before].salt:
                raise LogDamaged(
                    directory.wal / file_name(before),
                    0,
                    f"it is another file than the one that {path.name} follows",
                )
            ends[before] = link.end
    return Chain(numbers, heads, ends, _newest(directory, numbers, heads, first_file, marks, disk))


def _missing(directory: Directory, number: int, named_by: Path) -> LogDamaged:
    return LogDamaged(
        directory.wal / file_name(number), 0, f"it is missing, and {named_by.name} names it"
    )


def _begins(directory: Directory, path: Path, number: int, first: int) -> None:
    if number > first:
        raise _missing(directory, number - 1, path)


def _newest(
    directory: Directory,
    numbers: Sequence[int],
    heads: Mapping[int, Head],
    first_file: int,
    marks: Sequence[SyncedMark],
    disk: int,
) -> int:
    """Return the bytes of the newest file that were on disk."""
    path = directory.wal / NAME
    if not marks:
        if directory.identity.logged:
            raise LogDamaged(
                path,
                0,
                f"neither it nor {directory.path / NAME} can be read: the newest file of the log "
                "may be missing",
            )
        return 0
    known = marks[0]
    for each in marks:
        if each.disk != disk:
            raise LogDamaged(
                path,
                0,
                f"what names the newest file is of disk {each.disk:016x}, this is {disk:016x}",
            )
    newest = numbers[-1] if numbers else 0
    if known.file >= max(first_file, 1) and known.file not in heads:
        raise _missing(directory, known.file, path)
    if known.file in heads and heads[known.file].salt != known.salt:
        raise LogDamaged(
            directory.wal / file_name(known.file), 0, "it is another file than the one on record"
        )
    if newest > known.file + 1:
        raise LogDamaged(
            path, 0, f"it names file {known.file} as the newest, and there is file {newest}"
        )
    return known.end if known.file == newest else 0
