"""Where the records of a file of the log end: behind them is space that was allocated ahead."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from warren_raft.storage import synced_mark
from warren_raft.storage.format import FIRST_RECORD, Damaged, decode_head, decode_record
from warren_raft.storage.wal import file_number


def records_end(path: Path) -> int:
    """The byte at which the last record of that file ends; 0: it has no head."""
    data = path.read_bytes()
    at = 0
    with suppress(Damaged):
        head = decode_head(data)
        at = FIRST_RECORD
        while at < len(data):
            at = decode_record(head.salt, data, at).end
    return at


def synced_end(path: Path) -> int:
    """Up to where a start takes damage to that file of a stopped node for damage, not a torn end.

    Of the newest file that is what the mark says; of the others, where their records end.
    """
    marks = [synced_mark.decode(each.read_bytes()) for each in _mark_files(path) if each.exists()]
    newest = max(marks, default=synced_mark.SyncedMark(), key=lambda mark: mark[:2])
    return newest.end if newest.file == file_number(path.name) else records_end(path)


def _mark_files(path: Path) -> tuple[Path, Path]:
    return path.with_name(synced_mark.NAME), path.parent.with_name(synced_mark.NAME)


def records_held(root: Path, pattern: str = "**/wal/*.wal") -> int:
    """The bytes of records in all files below; one that is removed in the middle has none."""
    held = 0
    for path in root.glob(pattern):
        with suppress(FileNotFoundError):
            held += records_end(path)
    return held
