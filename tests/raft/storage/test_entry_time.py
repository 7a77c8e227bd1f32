"""When an entry was written is found without its data, in memory and on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.raft.storage.kit import Disk
from warren_raft.storage.entry_time import EntryTime


def test_the_stamp_of_an_entry_in_memory_and_on_disk(tmp_path: Path) -> None:
    disk = Disk(tmp_path, memtable_bytes=3_000)
    disk.write(1, 1, [bytes(1_000)] * 6)
    disk.write(2, 1, [bytes(1_000)])
    store = disk.group(1)
    held, dropped = store.entry_time(6), store.entry_time(2)
    assert (held.time_ms, held.path) == (1_006, None)
    assert dropped.time_ms == 0 and dropped.path is not None, "the memtable has dropped it"
    assert (held.read(), dropped.read()) == (1_006, 1_002)
    with pytest.raises(KeyError):
        store.entry_time(7)
    disk.close()


def test_a_file_that_was_written_over_or_removed_says_nothing(tmp_path: Path) -> None:
    disk = Disk(tmp_path, memtable_bytes=100)
    disk.write(1, 1, [bytes(1_000)] * 3)
    found = disk.group(1).entry_time(2)
    assert found.path is not None and found.read() == 1_002
    assert EntryTime(2, 2, 0, found.path, found.offset).read() == 0, "another group"
    assert EntryTime(1, 3, 0, found.path, found.offset).read() == 0, "another entry"
    assert EntryTime(1, 2, 0, found.path, 1 << 30).read() == 0, "behind its end"
    assert EntryTime(1, 2, 0, tmp_path / "gone", 0).read() == 0
    disk.close()
