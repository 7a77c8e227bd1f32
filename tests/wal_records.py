"""Where the records of a file of the log end: behind them is space that was allocated ahead."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from warren_raft.storage.format import Damaged, decode_head, decode_record


def records_end(path: Path) -> int:
    """The byte at which the last record of that file ends; 0: it has no head."""
    data = path.read_bytes()
    at = 0
    with suppress(Damaged):
        head = decode_head(data)
        at = head.first_record
        while at < len(data):
            at = decode_record(head.salt, data, at).end
    return at


def records_held(root: Path, pattern: str = "**/wal/*.wal") -> int:
    """The bytes of records in all files below; one that is removed in the middle has none."""
    held = 0
    for path in root.glob(pattern):
        with suppress(FileNotFoundError):
            held += records_end(path)
    return held
