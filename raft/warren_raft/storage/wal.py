"""The write-ahead log: the records of all groups, one write and one sync at a time."""

from __future__ import annotations

import os
import queue
import threading
import time
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple

from warren_raft.measures import COUNTS, SECONDS, SIZES, Histogram
from warren_raft.storage.errors import WriteFailed
from warren_raft.storage.files import Files, is_full
from warren_raft.storage.format import (
    FIRST_RECORD,
    RECORD_HEADER_BYTES,
    Link,
    RecordKind,
    encode_head,
    encode_record,
)
from warren_raft.storage.spare_files import SpareFiles
from warren_raft.types import Entry, GroupId, HardState, Index, Term

HERE_BYTES_MAX = 16 << 10
SYNC_MS_SHORT = 1
SYNC_MS_LONG = 50
SLOW_MAX = 16
"""A batch up to that size is written without the thread while syncs are short."""
Mark = Callable[[int, int, int], None]
"""Durably record, beside the log, the newest file: its number, synced bytes (end), and salt."""
ZEROS = bytes(512 << 10)
"""What a growing file gets behind a small batch, so that syncs of the next ones write no length."""
SMALL_MIN = 16
"""After so many small batches in a row zeros are written ahead; with large ones it does not pay."""
PAGE_BYTES = 4096
"""A page of the page cache. One that is written as a whole need not be read before."""
SPACE_RETRY_S = 0.2
"""Interval between attempts to write a batch for which there is no space."""
ENTRY, HARD_STATE, LIVE = int(RecordKind.ENTRY), int(RecordKind.HARD_STATE), int(RecordKind.LIVE)


Job = Callable[[], Callable[[], None]]
"""A write that may block; the function that it returns is called on the owner's thread."""


class Place(NamedTuple):
    """The place of a record: its file's number, the offset of its header, its data's length."""

    file: int
    offset: int
    length: int


def file_name(number: int) -> str:
    """Return the name of WAL file `number`."""
    return f"{number:012d}.wal"


def file_number(name: str) -> int | None:
    """Invert `file_name`; None for other names."""
    stem, dot, suffix = name.partition(".")
    return int(stem) if dot and suffix == "wal" and stem.isdigit() else None


@dataclass(slots=True)
class _WriteBatch:
    """Records to be written to one file.

    link  the link to the file before it, for a new file
    Invariant: size is the sum of the buffers' lengths
    """

    number: int
    file: int
    salt: int
    link: Link
    offset: int = FIRST_RECORD
    size: int = 0
    records: int = 0
    buffers: list[bytes | memoryview] = field(default_factory=list)
    done: list[Callable[[], None]] = field(default_factory=list)
    groups: set[GroupId] = field(default_factory=set)
    deleted: list[GroupId] = field(default_factory=list)


@dataclass(slots=True, eq=False, repr=False)
class _Writer:
    """The newest file, open. Used by the thread that has the batch in flight: one at a time.

    A write that finds no space leaves a torn end that was not acknowledged; the same bytes are
    written over it, at the same offset, when `write` is called for the batch again.

    file  its number; -1: none is open
    reserved  up to there the file's space is allocated; recycled: files made of spare ones
    grows     its head says that nothing is allocated ahead: what follows its records was torn
    unnamed  arguments for `mark` of the file before the first one that is begun here; None: it was
          marked by this process, or there is none
    slow  of the last syncs, how many more took longer than SYNC_MS_SHORT than did not; SLOW_MAX
          after one that took longer than SYNC_MS_LONG
    syncs  see `RaftMeasures`
    """

    _files: Files
    _directory: Path
    _mark: Mark
    unnamed: tuple[int, int, int] | None
    _file_bytes: int
    _spares: SpareFiles | None
    _end: int = 0
    _small: int = SMALL_MIN
    reserved: int = 0
    grows: bool = True
    recycled: int = 0
    file: int = -1
    _fd: int = -1
    slow: int = 0
    syncs: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    path: Path = field(init=False)

    def __post_init__(self) -> None:
        self.path = self._directory

    def write(self, batch: _WriteBatch) -> None:
        """Write and sync; raises OSError, after which it may be repeated only if `is_full`."""
        if not batch.buffers:
            return
        files = self._files
        if batch.file != self.file:
            self._begin(batch)
        end = batch.offset + batch.size
        self._small = self._small + 1 if batch.size <= HERE_BYTES_MAX else 0
        if end < self.reserved:
            pad = min(-end % PAGE_BYTES, self.reserved - end)
            files.write_at(self._fd, batch.offset, [*batch.buffers, ZEROS[:pad]])
        else:
            files.write_at(self._fd, batch.offset, batch.buffers)
            if not self.grows and self._small >= SMALL_MIN:
                self._reserve(end)
        began = time.monotonic()
        files.sync_data(self._fd)
        self._end = end
        took, syncs = time.monotonic() - began, self.syncs
        syncs.counts[bisect_left(syncs.bounds, took)] += 1
        syncs.total += took
        took_ms = took * 1000
        if took_ms <= SYNC_MS_SHORT:
            self.slow = max(0, self.slow - 1)
        else:
            self.slow = SLOW_MAX if took_ms > SYNC_MS_LONG else min(SLOW_MAX, self.slow + 1)

    def _reserve(self, end: int) -> None:
        """Write zeros behind the records. Where there is no space for them the file just grows."""
        size = min(len(ZEROS), self._file_bytes - end)
        if size > 0:
            try:
                self._files.write_at(self._fd, end, [ZEROS[:size]])
                self.reserved = end + size
            except OSError as error:
                if not is_full(error):
                    raise

    def _create(self, batch: _WriteBatch) -> int:
        """Make the file, of a spare one if there is one, and return its descriptor."""
        files, spares = self._files, self._spares

        def head(reserved: int) -> bytes:
            self.reserved, self.grows = reserved, not reserved
            link = batch.link._replace(reserved=reserved)
            return encode_head(batch.file, batch.salt, batch.number, link)

        spare = None if spares is None else spares.take()
        if spare is not None:
            try:
                fd = files.reuse(spare, self.path, head(files.size(spare)))
                self.recycled += 1
                return fd
            except FileNotFoundError:
                pass  # it was removed by hand
        size = 0 if spares is None else min(len(ZEROS), self._file_bytes)
        if size > FIRST_RECORD:
            try:
                return files.create(self.path, head(size) + ZEROS[FIRST_RECORD:size])
            except OSError as error:
                if not is_full(error):
                    raise
        return files.create(self.path, head(0))

    def _begin(self, batch: _WriteBatch) -> None:
        # 1. The file is made, its directory synced.  2. Its existence is recorded in the mark.
        # 3. Only then a record in it is acknowledged. Without 2 a newest file that is missing at a
        # start would not be detected: the one before it is intact.
        # Replayed by tests/raft/storage/test_whole_directory.py
        self.close()
        # 1. A process makes file 3, and ends before that is recorded.  2. The next one makes file
        # 4, and ends there, too.  3. The mark names 2, and a start would take that for an old copy,
        # although all files are intact. So file 3 is recorded first: at most one file is ahead.
        # Replayed by tests/raft/storage/test_begun_files.py
        if self.unnamed is not None:
            self._mark(*self.unnamed)
            self.unnamed = None
        self.path = self._directory / file_name(batch.file)
        self._fd = self._create(batch)
        self._end = FIRST_RECORD
        self._mark(batch.file, FIRST_RECORD, batch.salt)
        self.file = batch.file

    def give_back(self) -> None:
        """Cut off what was allocated ahead; nothing is written to the file any more."""
        if self.file >= 0 and self._end < self.reserved:
            with suppress(OSError):
                self._files.cut(self.path, self._end)

    def close(self) -> None:
        """Close the file."""
        self.file = -1
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._files.close(fd)


@dataclass(frozen=True, slots=True)
class LogEnd:
    """How the log on disk ends, as recovery found it, for the writer of what follows.

    salts    of the files there are; those of new ones are added
    ends     where the records of complete files end; those of new ones are added
    link     the link of `next_file` to the file before it
    unnamed  the newest file there is, as for `Mark`: it is marked before the next is begun
    """

    next_file: int
    next_batch: int
    salts: dict[int, int]
    ends: dict[int, int]
    link: Link
    unnamed: tuple[int, int, int] | None


class Wal:
    """The log's writer: one batch is being written while the next one collects.

    A batch is in one file. Files are numbered; a new one is begun at every start, and when the
    newest has reached `file_bytes`. The sync runs on a thread of its own, which uses only the
    writer of this object: jobs are passed by a queue, completions come back by `post`. A small
    batch, on a quick disk, is written on the submitting thread, at the turn's end: waking a
    thread, and being woken by it, takes longer than such a sync.
    Invariants: at most one batch is being written, by either thread;  batch numbers increase by one
    """

    def __init__(
        self,
        files: Files,
        directory: Path,
        post: Callable[[Callable[[], None]], None],
        end: LogEnd,
        *,
        file_bytes: int,
        mark: Mark,
        on_full: Callable[[OSError | None], None],
        on_batch: Callable[[int, set[GroupId], list[GroupId]], None],
        at_turn_end: Callable[[Job], None] | None = None,
        spares: SpareFiles | None = None,
    ) -> None:
        """post: calls back on the owner's thread; a failure is posted as a call that raises.

        `on_disk` is the file of the last batch that is on disk, and where it ends there; (0, 0)
        before the first. `synced_batch` is its number. `backlog_bytes` were added and are not on
        disk yet. `syncs`, `sync_bytes` and `sync_records`: see `RaftMeasures`.

        mark         see Mark; called on the thread before a new file's first record is written
        at_turn_end  runs a job when everything that may be sent before a sync was sent, then calls
                     what it returns on the owner's thread; the job may block, and uses the writer
                     only. None: every batch is written by the thread
        spares       files to be written over; None: files are not allocated ahead either
        on_full      called with the error when there is no space for the batch in flight, and with
                     None when it was written after all
        on_batch     called with each batch that is on disk: its file, its groups, those deleted
        """
        self._files = files
        self._directory = directory
        self._post = post
        self._file_bytes = file_bytes
        self._jobs: queue.SimpleQueue[_WriteBatch | None] = queue.SimpleQueue()
        self._in_flight: _WriteBatch | None = None
        self.salts = end.salts
        self.ends = end.ends
        salt = self._new_salt(end.next_file)
        self._collecting = _WriteBatch(end.next_batch, end.next_file, salt, end.link)
        self._at_turn_end = at_turn_end
        self._here: _WriteBatch | None = None
        self._writer = _Writer(files, directory, mark, end.unnamed, file_bytes, spares)
        self.syncs = self._writer.syncs
        self.sync_bytes, self.sync_records = Histogram(SIZES), Histogram(COUNTS)
        self._failed = False
        self._closing = Event()
        self.batches = 0
        self.bytes_written = 0
        self.backlog_bytes = 0
        self.on_disk = (0, 0)
        self.synced_batch = end.next_batch - 1
        self.full: OSError | None = None
        self._on_full = on_full
        self._on_batch = on_batch
        self._thread = threading.Thread(target=self._work, name="wal", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------ collecting

    def entry(self, group: GroupId, entry: Entry) -> Place:
        """Add an entry to the batch; it replaces the group's entries from its index on."""
        data = entry.data
        return self._add(
            ENTRY, group, entry.index, entry.term, data, int(entry.kind), entry.time_ms
        )

    def hard_state(self, group: GroupId, state: HardState) -> None:
        """Add a term and vote."""
        vote = b"" if state.vote is None else state.vote.encode()
        self._add(HARD_STATE, group, 0, state.term, vote)

    def live(self, group: GroupId, entry: Entry) -> Place:
        """Add an entry that another member's snapshot refers to; it replaces nothing."""
        return self._add(
            LIVE, group, entry.index, entry.term, entry.data, int(entry.kind), entry.time_ms
        )

    def base(self, group: GroupId, index: Index, term: Term) -> None:
        """Add a record that the group's log begins again after a snapshot, which is on disk."""
        self._add(int(RecordKind.BASE), group, index, term, b"")

    def created(self, group: GroupId, data: bytes) -> tuple[int, int]:
        """Add a group's GROUP_CREATED; recovery returns its data. Return its position."""
        position = self.position
        self._add(int(RecordKind.GROUP_CREATED), group, 0, 0, data)
        return position

    def deleted(self, group: GroupId) -> None:
        """Add a group's GROUP_DELETED: its records before this one are void."""
        self._add(int(RecordKind.GROUP_DELETED), group, 0, 0, b"")
        self._collecting.groups.discard(group)
        self._collecting.deleted.append(group)

    def _add(
        self,
        kind: int,
        group: GroupId,
        index: int,
        term: int,
        data: bytes,
        entry_kind: int = 0,
        time_ms: int = 0,
    ) -> Place:
        batch = self._collecting
        header = encode_record(
            batch.salt, batch.number, kind, group, index, term, data, entry_kind, time_ms
        )
        place = Place(batch.file, batch.offset + batch.size, len(data))
        batch.buffers.append(header)
        if data:
            batch.buffers.append(data)
        size = RECORD_HEADER_BYTES + len(data)
        batch.size += size
        self.backlog_bytes += size
        batch.records += 1
        batch.groups.add(group)
        return place

    def submit(self, done: Callable[[], None]) -> None:
        """Call `done` when everything added so far is on disk; in the order of the submits."""
        self._collecting.done.append(done)
        if self._in_flight is None:
            self._start()

    def _new_salt(self, file: int) -> int:
        salt = self.salts[file] = int.from_bytes(os.urandom(4), "little") or 1
        return salt

    def _link(self, batch: _WriteBatch, end: int) -> Link:
        """Return the link to the file of that batch, with records up to `end`."""
        return Link(batch.link.disk, batch.salt, end)

    @property
    def current_file(self) -> int:
        """The number of the file for the next record."""
        return self._collecting.file

    @property
    def position(self) -> tuple[int, int]:
        """Return (batch, record in it) of the record that is added next; it only increases."""
        return self._collecting.number, self._collecting.records

    def roll(self) -> None:
        """Begin a new file with the next batch, unless the newest is empty."""
        batch = self._collecting
        if not batch.records and batch.offset > FIRST_RECORD:
            self.ends[batch.file] = batch.offset
            self._collecting = _WriteBatch(
                batch.number,
                batch.file + 1,
                self._new_salt(batch.file + 1),
                self._link(batch, batch.offset),
                done=batch.done,
            )

    @property
    def newest_bytes(self) -> int:
        """The length of the newest file's records that were passed to the disk."""
        return self._collecting.offset

    @property
    def newest_grows(self) -> bool:
        """Whether the newest file is open, and was not made of a spare one."""
        writer = self._writer
        return writer.file == self._collecting.file and writer.reserved < self._file_bytes // 2

    @property
    def closed_below(self) -> int:
        """The file number below which files are complete and on disk."""
        in_flight = self._in_flight
        return self._collecting.file if in_flight is None else in_flight.file

    @property
    def recycled(self) -> int:
        """The number of files that this process has made of spare ones."""
        return self._writer.recycled

    @property
    def idle(self) -> bool:
        """Whether nothing is being written and nothing waits."""
        return self._in_flight is None and not self._collecting.done

    @property
    def writes_here(self) -> bool:
        """Whether a batch is written on the owner's thread at the end of this turn."""
        return self._here is not None

    # ------------------------------------------------------------ writing

    def _start(self) -> None:
        batch = self._collecting
        end = batch.offset + batch.size + (RECORD_HEADER_BYTES if batch.records else 0)
        if batch.records:
            batch.buffers.append(
                encode_record(batch.salt, batch.number, RecordKind.BATCH_END, 0, batch.records, 0)
            )
            batch.size += RECORD_HEADER_BYTES
            self.backlog_bytes += RECORD_HEADER_BYTES
        file, number, link = batch.file, batch.number + (1 if batch.records else 0), batch.link
        if end >= self._file_bytes:
            self.ends[file] = end
            file, link, end = file + 1, self._link(batch, end), FIRST_RECORD
            self._new_salt(file)
        self._in_flight = batch
        self._collecting = _WriteBatch(number, file, self.salts[file], link, end)
        # A new file takes several syncs, on a disk that may be slow by now.
        open_already = batch.file == self._writer.file
        quick = open_already and batch.size <= HERE_BYTES_MAX and self._writer.slow < SLOW_MAX // 2
        if quick and self._at_turn_end is not None:
            self._here = batch
            self._at_turn_end(self._write_here)
        else:
            self._jobs.put(batch)

    def _write_here(self) -> Callable[[], None]:
        batch, self._here = self._here, None
        if batch is None:
            return lambda: None  # `close` has passed it to the thread
        try:
            self._writer.write(batch)
        except OSError as error:
            return partial(self._not_written_here, batch, error)
        return partial(self._finished, batch)

    def _not_written_here(self, batch: _WriteBatch, error: OSError) -> None:
        if not is_full(error):
            self._fail(self._writer.path, error)
        self._is_full(error)
        self._jobs.put(batch)

    def _is_full(self, error: OSError | None) -> None:
        """Report that there is no space for the batch in flight; None: it was written."""
        if (self.full is None) != (error is None):
            self.full = error
            self._on_full(error)

    def _finished(self, batch: _WriteBatch) -> None:
        assert batch is self._in_flight, (batch.number, self._in_flight)
        self._in_flight = None
        if self.full is not None:
            self._is_full(None)
        self.batches += 1
        self.bytes_written += batch.size
        self.backlog_bytes -= batch.size
        if batch.records:
            self.on_disk = (batch.file, batch.offset + batch.size)
            self.synced_batch = batch.number
            sizes, numbers = self.sync_bytes, self.sync_records
            sizes.counts[bisect_left(sizes.bounds, batch.size)] += 1
            sizes.total += batch.size
            numbers.counts[bisect_left(numbers.bounds, batch.records)] += 1
            numbers.total += batch.records
            self._on_batch(batch.file, batch.groups, batch.deleted)
        for done in batch.done:
            done()
        if self._in_flight is None and self._collecting.done:
            self._start()

    def _fail(self, path: Path, error: OSError) -> None:
        self._failed = True
        raise WriteFailed(path, error) from error

    def _died(self) -> None:
        self._failed = True
        raise AssertionError("the WAL's thread ended; its traceback was printed before this")

    def _wrote(self, batch: _WriteBatch) -> bool:
        """Write the batch; False: there was no space."""
        try:
            self._writer.write(batch)
        except OSError as error:
            if not is_full(error):
                raise
            full = error
            self._post(lambda: self._is_full(full))
            return False
        return True

    def _work(self) -> None:
        """Run the thread: write and sync each batch and report it; end at the first failure."""
        ended = False
        try:
            while (batch := self._jobs.get()) is not None:
                while not self._wrote(batch):
                    if self._closing.wait(SPACE_RETRY_S):
                        ended = True
                        return
                self._post(lambda batch=batch: self._finished(batch))  # type: ignore[misc]
            ended = True
        except OSError as error:
            ended, failure = True, error
            self._post(lambda: self._fail(self._writer.path, failure))
        finally:
            if not ended:  # a bug: without the thread nothing becomes durable any more
                self._post(self._died)

    def close(self) -> None:
        """Finish what was submitted, then end the thread, without further completions.

        A write without space is repeated once: nothing of it was acknowledged.
        """
        self._at_turn_end = None
        if self._here is not None:
            self._jobs.put(self._here)
            self._here = None
        if not self._failed and self._in_flight is None and self._collecting.records:
            self._start()
        self._closing.set()
        self._jobs.put(None)
        self._thread.join()
        if not self._failed:
            self._writer.give_back()
        self._writer.close()
