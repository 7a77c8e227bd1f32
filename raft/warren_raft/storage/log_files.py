"""The files of a node's log, and the reading of single records from them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from warren_raft.storage.errors import EntryDamaged, LogDamaged
from warren_raft.storage.files import Files
from warren_raft.storage.format import (
    ENTRY_RECORDS,
    RECORD_HEADER_BYTES,
    Damaged,
    EntryParts,
    decode_entry,
    decode_record,
    intact_entry,
)
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.identity import Directory
from warren_raft.storage.recovery import Recovered
from warren_raft.storage.snapshot import Snapshot
from warren_raft.storage.snapshot import decode as decode_snapshot
from warren_raft.storage.snapshot import file_name as snapshot_name
from warren_raft.storage.wal import Place, file_name
from warren_raft.types import Entry, GroupId, Index

OPEN_FILES_MAX = 64
RUN_BYTES_MAX = 1 << 20
"""The most that one read of neighbours takes from a file; a longer entry is read alone."""
GAP_BYTES_MAX = 8 << 10
"""Neighbours may have so much of other groups between them: to copy it costs less than a read."""


class ReadWatch:
    """A context manager that measures reads on the loop's thread: `with watch: read()`.

    Such a read cannot be moved to another thread like a write: its caller needs the bytes to
    continue. While the disk does not answer, the loop is blocked, and other nodes suspect this one.

    since_ms  when the read in progress began; None: there is none. May be read by any thread
    clock_ms  a monotonic clock
    """

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self._longest_ms = 0
        self.since_ms: int | None = None

    def __enter__(self) -> None:
        self.since_ms = self._clock_ms()

    def __exit__(self, *error: object) -> None:
        began_ms, self.since_ms = self.since_ms, None
        assert began_ms is not None, "exit without enter"
        self._longest_ms = max(self._longest_ms, self._clock_ms() - began_ms)

    def take_ms(self) -> int:
        """Return how long the longest read since the last call took."""
        longest_ms, self._longest_ms = self._longest_ms, 0
        return longest_ms


class LogFiles:
    """WAL files, segments and snapshots of one directory. Used on the owner's thread only.

    use         the groups with records in each WAL file
    salts       per file (WAL file or segment), for reading it
    ends        where the records of a complete WAL file end; after them is space of no use
    segments    ascending
    paths       of segments, by their number in this process
    first_file  the oldest WAL file that the manifest requires
    listed      groups that the manifest names
    reads       measures how long reads take
    """

    def __init__(
        self, files: Files, directory: Directory, recovered: Recovered, clock_ms: Callable[[], int]
    ) -> None:
        self.files = files
        self.directory = directory
        self.reads = ReadWatch(clock_ms)
        self.salts = recovered.salts
        self.use = recovered.use
        self.ends = recovered.ends
        self.segments = recovered.catalog.segments
        self.first_file = recovered.catalog.manifest.first_file
        self.listed = {row.group for row in recovered.catalog.manifest.groups}
        self.paths = {segment.id: segment.data for segment in self.segments}
        self._next_segment = recovered.catalog.next_segment
        self._open_files: OrderedDict[int, int] = OrderedDict()

    # ------------------------------------------------------------ paths

    def path_of(self, file: int) -> Path:
        """Return the path of a segment's data or of a WAL file."""
        return self.paths.get(file) or self.wal_path(file)

    def wal_path(self, file: int) -> Path:
        """Return the path of a WAL file."""
        return self.directory.wal / file_name(file)

    def snapshot_path(self, group: GroupId, index: Index) -> Path:
        """Return the path of a group's snapshot up to `index`."""
        return self.directory.snapshots / snapshot_name(group, index)

    def wal_bytes(self, file: int) -> int:
        """Return the length of a complete WAL file, up to the end of its records."""
        end = self.ends.get(file)
        return self.files.size(self.wal_path(file)) if end is None else end

    # ------------------------------------------------------------ reading

    def read_entry(self, log: GroupLog, index: Index) -> Entry:
        """Read one entry; raises KeyError when it is not there, EntryDamaged if not intact."""
        place = log.place(index)
        path = self.path_of(place.file)
        known = log.term(index) if index >= log.first else 0
        try:
            with self.reads:
                data = self.files.read_at(
                    self._descriptor(place.file), place.offset, RECORD_HEADER_BYTES + place.length
                )
            record = decode_record(self.salts[place.file], data, 0)
            term = known or record.term
            if (record.group, record.index, record.term) != (
                log.group,
                index,
                term,
            ) or record.kind not in ENTRY_RECORDS:
                raise Damaged(f"it is not entry {index} of group {log.group}")
            return decode_entry(record)
        except (Damaged, OSError) as damage:
            raise EntryDamaged(
                path, place.offset, str(damage), log.group, index, known, place.file
            ) from None

    def read_entries(
        self, log: GroupLog, indexes: Iterable[Index]
    ) -> Iterator[EntryParts | EntryDamaged]:
        """Yield entries in that order; those that lie near each other are read at once.

        One that is not intact is yielded as an error, and those beside it as if it were. Raises
        KeyError at one that is not there.
        """
        for run in _neighbours(log, indexes):
            begin, data = run[0][1].offset, self._read_run(run)
            for index, place in run:
                found = intact_entry(
                    self.salts[place.file],
                    data,
                    place.offset - begin,
                    log.group,
                    index,
                    place.length,
                )
                if found is None or (index >= log.first and found[1] != log.term(index)):
                    yield self._read_alone(log, index)
                else:
                    yield found

    def _read_run(self, run: list[tuple[Index, Place]]) -> memoryview:
        """Read all bytes of neighbours in a file; nothing where that fails."""
        # 1. Ten entries are read at once.  2. The disk cannot read a sector of the fifth, and the
        # whole read fails.  The nine others are intact: each is then read alone, and says for
        # itself what is wrong with it.
        # Replayed by tests/raft/storage/test_neighbours.py
        first, last = run[0][1], run[-1][1]
        size = last.offset + RECORD_HEADER_BYTES + last.length - first.offset
        try:
            with self.reads:
                fd = self._descriptor(first.file)
                return memoryview(self.files.read_at(fd, first.offset, size))
        except OSError:
            return memoryview(b"")

    def _read_alone(self, log: GroupLog, index: Index) -> EntryParts | EntryDamaged:
        try:
            entry = self.read_entry(log, index)
        except EntryDamaged as damage:
            return damage
        return entry.index, entry.term, entry.kind, entry.time_ms, entry.data

    def read_snapshot(self, group: GroupId, index: Index) -> Snapshot:
        """Read a group's snapshot up to `index`; raises LogDamaged."""
        path = self.snapshot_path(group, index)
        try:
            with self.reads:
                data = self.files.read(path)
            return decode_snapshot(data)
        except (Damaged, OSError) as damage:
            raise LogDamaged(path, 0, str(damage)) from None

    def _descriptor(self, file: int) -> int:
        fd = self._open_files.get(file)
        if fd is None:
            if len(self._open_files) >= OPEN_FILES_MAX:
                self.files.close(self._open_files.popitem(last=False)[1])
            fd = self.files.open_read(self.path_of(file))
            self._open_files[file] = fd
        else:
            self._open_files.move_to_end(file)
        return fd

    def close(self) -> None:
        """Close the files that were opened for reading."""
        for fd in self._open_files.values():
            self.files.close(fd)
        self._open_files.clear()

    # ------------------------------------------------------------ new segments, removed files

    def new_segment_id(self) -> int:
        """Return a number that no segment has had since the start of the process."""
        self._next_segment += 1
        return self._next_segment - 1

    def forget_file(self, file: int) -> None:
        """Close a file that no entry needs any more; it is removed next."""
        fd = self._open_files.pop(file, None)
        if fd is not None:
            self.files.close(fd)
        self.paths.pop(file, None)
        self.salts.pop(file, None)
        self.ends.pop(file, None)


def _neighbours(log: GroupLog, indexes: Iterable[Index]) -> Iterator[list[tuple[Index, Place]]]:
    """Yield runs of entries to be read at once; raises KeyError at one that is not there."""
    run: list[tuple[Index, Place]] = []
    begin = end = file = 0
    for index in indexes:
        try:
            place = log.place(index)
        except KeyError:
            if run:
                yield run
            raise
        after = place.offset + RECORD_HEADER_BYTES + place.length
        near = place.file == file and 0 <= place.offset - end <= GAP_BYTES_MAX
        if run and not (near and after - begin <= RUN_BYTES_MAX):
            yield run
            run = []
        if not run:
            begin, file = place.offset, place.file
        run.append((index, place))
        end = after
    if run:
        yield run
