"""A slow read of rarely read files, to find damage while other members can repair it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from warren_raft.storage import manifest, rewrite, segment, snapshot
from warren_raft.storage.compaction import REPORTED_AT_ONCE
from warren_raft.storage.errors import EntryDamaged
from warren_raft.storage.files import Files
from warren_raft.storage.format import (
    FILE_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    Damaged,
    decode_file_header,
    decode_record,
    record_length,
)
from warren_raft.storage.log_store import LogStore
from warren_raft.storage.segment import ID_BASE
from warren_raft.types import GroupId

log = logging.getLogger("warren.raft")

SCRUB_PIECE_BYTES = 1 << 20
"""Bytes read in one job of the background writer's thread, which delays other jobs that long."""
FIRST_AFTER_MS = 60_000
"""Delay after the start, when a node is busy with recovery."""
WHOLE = {
    manifest.NAME: manifest.decode,
    segment.INDEX_SUFFIX: segment.decode,
    snapshot.SUFFIX: snapshot.decode,
}


@dataclass(slots=True)
class ScrubJob:
    """A part of a file that one job reads.

    file    number in places, 0: it is read whole
    group   of the snapshot
    offset  where it begins; end: the end of the file's valid part
    """

    path: Path
    file: int = 0
    salt: int = 0
    offset: int = 0
    end: int = 0
    group: GroupId | None = None


@dataclass(slots=True)
class Seen:
    """The result: bytes read, where to continue (None: at the end), and the damage found."""

    size: int = 0
    offset: int | None = None
    damage: str = ""


@dataclass(slots=True)
class Round:
    """One pass over all files."""

    left: Iterator[ScrubJob] = field(default_factory=lambda: iter(()))
    files: int = 0
    damaged: int = 0


class Scrub:
    """A scrubber: it reads every complete file at a limited rate, then pauses.

    Damage is repaired as if a read had found it: entries are requested from other members, then the
    file is rewritten; a segment's index or the manifest is written again from memory, a snapshot
    is taken again. The newest file of the log is skipped: it is being written.
    """

    def __init__(
        self, store: LogStore, bytes_per_second: int, interval_ms: int, now_ms: int
    ) -> None:
        """bytes_per_second 0: never; interval_ms: from the beginning of a round to the next."""
        self._store = store
        self._rate = bytes_per_second
        self._interval_ms = interval_ms
        self._next_ms = now_ms + min(interval_ms, FIRST_AFTER_MS)
        self._round: Round | None = None
        self._busy = False
        self._ready_ms = 0
        self.rounds = 0

    def beat(self, now_ms: int) -> None:
        """Read a piece if one is due."""
        if not self._rate or self._busy or now_ms < self._ready_ms:
            return
        if self._round is None:
            if now_ms < self._next_ms:
                return
            self._next_ms = now_ms + self._interval_ms
            self._round = Round(self._pieces())
        piece = next(self._round.left, None)
        if piece is None:
            self._end_round(self._round)
        else:
            self._round.files += 1
            self._read(piece, now_ms)

    def _end_round(self, ended: Round) -> None:
        self._round = None
        self.rounds += 1
        if ended.damaged:
            log.warning("scrub finished: %s of %s files are damaged", ended.damaged, ended.files)

    def _pieces(self) -> Iterator[ScrubJob]:
        store = self._store
        for found in list(store.log_files.segments):
            yield ScrubJob(found.index, found.id)
            yield ScrubJob(found.data, found.id, found.salt, FILE_HEADER_BYTES, found.bytes)
        for file in sorted(store.log_files.use.live):
            if file < store.wal.closed_below and file in store.log_files.salts:
                path = store.log_files.wal_path(file)
                end = store.log_files.ends.get(file, -1)
                yield ScrubJob(path, file, store.log_files.salts[file], FILE_HEADER_BYTES, end)
        for number, group in sorted(store.groups.items()):
            if group.snapshot_index:
                yield ScrubJob(store.snapshot_path(group), group=number)
        yield ScrubJob(store.directory.path / manifest.NAME)

    def _read(self, piece: ScrubJob, now_ms: int) -> None:
        self._busy = True
        files = self._store.files
        self._store.background_writer.run(
            lambda: look(files, piece),
            lambda seen: self._seen(piece, seen, now_ms),
            lambda error: self._seen(piece, Seen(), now_ms),
        )

    def _seen(self, piece: ScrubJob, seen: Seen, now_ms: int) -> None:
        self._busy = False
        self._ready_ms = now_ms + seen.size * 1000 // self._rate
        if seen.damage and self._in_use(piece):
            assert self._round is not None
            self._round.damaged += 1
            self._damaged(piece, seen.damage)
        elif seen.offset is not None:
            piece.offset = seen.offset
            self._read_on(piece)

    def _in_use(self, piece: ScrubJob) -> bool:
        """Return whether the file still counts: it may have been replaced while it was read."""
        store = self._store
        if piece.group is not None:
            group = store.groups.get(piece.group)
            return group is not None and store.snapshot_path(group) == piece.path
        if not piece.file:
            return bool(store.log_files.listed)
        data = (found for found in store.log_files.segments if found.id == piece.file)
        paths = [path for found in data for path in (found.data, found.index)]
        return piece.path in paths or (
            piece.file in store.log_files.use.live and piece.file < ID_BASE
        )

    def _read_on(self, piece: ScrubJob) -> None:
        assert self._round is not None
        rest = self._round.left

        def pieces() -> Iterator[ScrubJob]:
            yield piece
            yield from rest

        self._round.left = pieces()
        self._round.files -= 1

    # ------------------------------------------------------------ damage

    def _damaged(self, piece: ScrubJob, damage: str) -> None:
        store = self._store
        log.error("%s is damaged: %s; rewriting it", piece.path, damage)
        if piece.group is not None:
            store.compactor.snapshots_damaged.add(piece.group)
        elif not piece.file:
            store.compactor.manifest_damaged = True
        else:
            if piece.salt:
                self._look_at_rows(piece)
            elif piece.file not in store.compactor.left:
                store.compactor.damaged.add(piece.file)

    def _look_at_rows(self, piece: ScrubJob) -> None:
        """Read every retained entry of that file to find out which are damaged."""
        store = self._store
        if piece.file >= ID_BASE and all(s.id != piece.file for s in store.log_files.segments):
            return
        source = store.compactor.source(piece.file, piece.path)
        files = store.files

        def told(found: list[EntryDamaged]) -> None:
            # If only released entries are damaged, the file is just rewritten. Rewriting also finds
            # entries that no member has, and then skips the file: they were not needed yet.
            # It finds the rest of very many, too: the repair of all would take this turn too long.
            store.compactor.damaged.add(piece.file)
            for each in found[:REPORTED_AT_ONCE]:
                group = store.groups.get(each.group)
                if group is not None and group.healed(each.index) is None:
                    store.repair(each)

        store.background_writer.run(
            lambda: rewrite.damaged_rows(files, source), told, lambda error: None
        )


def look(files: Files, piece: ScrubJob) -> Seen:
    """Read a piece, on the background writer's thread."""
    try:
        if piece.salt:
            return _look_at_records(files, piece)
        data = files.read(piece.path)
        WHOLE.get(piece.path.name, WHOLE.get(piece.path.suffix, manifest.decode))(data)
        return Seen(len(data))
    except (Damaged, OSError) as damage:
        return Seen(SCRUB_PIECE_BYTES, None, str(damage))


def _look_at_records(files: Files, piece: ScrubJob) -> Seen:
    end = files.size(piece.path) if piece.end < 0 else piece.end
    fd = files.open_read(piece.path)
    try:
        files.drop_cached(fd, piece.offset, SCRUB_PIECE_BYTES)
        if piece.offset == FILE_HEADER_BYTES:
            decode_file_header(files.read_at(fd, 0, FILE_HEADER_BYTES))
        data = files.read_at(fd, piece.offset, min(SCRUB_PIECE_BYTES, end - piece.offset))
        at = 0
        while piece.offset + at < end:
            left = len(data) - at
            if left >= RECORD_HEADER_BYTES:
                whole = RECORD_HEADER_BYTES + record_length(data, at)
            if left < RECORD_HEADER_BYTES or left < whole:
                if piece.offset + len(data) >= end:
                    raise Damaged(f"no whole record at byte {piece.offset + at}")
                if not at:  # a record that is larger than a piece
                    size = max(whole, RECORD_HEADER_BYTES)
                    data = files.read_at(fd, piece.offset, min(size, end - piece.offset))
                    if len(data) < whole:
                        raise Damaged(f"no whole record at byte {piece.offset}")
                    continue
                return Seen(at, piece.offset + at)
            try:
                decode_record(piece.salt, data, at)
            except Damaged as damage:
                raise Damaged(f"byte {piece.offset + at}: {damage}") from None
            at += whole
        return Seen(at)
    finally:
        files.close(fd)
