"""Backups of a running cluster.

Each group is copied as of one entry of its log, one after the other, while the cluster is in use:

1. The definitions are read: they name the queues.
2. Each queue is copied that has not been copied yet, those that send dead letters first.
3. The definitions are read again. A queue that was made meanwhile is copied now; one that was
   deleted is left out. That is repeated until the definitions name copied queues alone: these
   definitions are in the backup.

What an earlier backup in the same place has of a queue is not copied again: an entry that a
snapshot refers to was referred to by every snapshot since it was written, so one with an index up
to that of the earlier copy is in that copy's files.
"""

from __future__ import annotations

import hashlib
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from warren.calls import AdminCalls
from warren.connection import Connection
from warren.errors import NotFound, PeerError, Unavailable, UsageError, WarrenError
from warren_wire import VERSION
from warren_wire.admin.backups import (
    DEFINITIONS_GROUP,
    BackupPart,
    HeldGroup,
    HoldGroupRequest,
    QueueRow,
    ReadHeldRequest,
    ReleaseHeldRequest,
)
from warren_wire.backups import manifest as m
from warren_wire.backups.entries import record_ends
from warren_wire.backups.store import BackupStore

DATA_FILE_BYTES: Final = 16 << 20
"""A file of entries ends with the record that reaches this size."""
NOTED_EVERY_S: Final = 5.0
"""Interval at which what was copied is noted for a run that continues this one."""
BACKUP_ROUNDS_MAX: Final = 100
SNAPSHOTS_LOST_MAX: Final = 5
"""Snapshots of one group that may be lost, one after the other, while they are read."""
READ_AGAIN_S: Final = 1.0


@dataclass
class Copied:
    """What a run did: bytes read from the cluster, and bytes of files that were there already."""

    bytes: int = 0
    reused_bytes: int = 0
    groups: int = 0
    reused_groups: int = 0


class _Lost(WarrenError):
    """A snapshot is held no more."""


class Backup:
    """One backup of a cluster into a place.

    done  what was done so far
    """

    def __init__(
        self,
        connection: Connection,
        store: BackupStore,
        *,
        bytes_per_second: int = 0,
        skip_unreachable: bool = False,
        show: Callable[[str], None] = lambda text: None,
    ) -> None:
        """bytes_per_second: 0: as fast as it goes; show: is told of the progress."""
        self._calls = AdminCalls(connection)
        self._store = store
        self._pace = _Pace(bytes_per_second)
        self._skips = skip_unreachable
        self._show = show
        self._copies: dict[int, m.GroupCopy] = {}
        self._earlier: dict[int, m.GroupCopy] = {}
        self._missing: dict[int, QueueRow] = {}
        self._noted_s = time.monotonic()
        self.done = Copied()

    def run(self) -> m.BackupManifest:
        """Make the backup, or continue one that was cut; return its manifest."""
        about = self._begin()
        for _ in range(BACKUP_ROUNDS_MAX):
            about, rows = self._definitions(about)
            wanted = [row for row in rows if row.copied and not self._has(row.group)]
            if not wanted:
                return self._end(about, rows)
            for row in sorted(wanted, key=lambda row: (not row.letters, row.group)):
                self._show(f"{self.done.groups:,} of {len(rows):,} queues, now {row.name}")
                self._queue(about, row)
        raise Unavailable(
            f"queues were made and deleted during each of {BACKUP_ROUNDS_MAX} rounds: back up at "
            "another time, or stop what declares them"
        )

    def _has(self, group: int) -> bool:
        copy = self._copies.get(group)
        return group in self._missing or (copy is not None and copy.whole)

    # ------------------------------------------------------------ what was there before

    def _begin(self) -> m.BackupManifest:
        now = datetime.now(UTC)
        about = m.BackupManifest(
            m.FORMAT, f"{now:%Y%m%dT%H%M%SZ}", f"{now:%Y-%m-%dT%H:%M:%SZ}", VERSION, "", "", 0, ()
        )
        for name in (*m.manifests(self._store), *m.manifests(self._store, m.PARTIAL)):
            try:
                found = m.load(self._store, name)
            except m.BackupDamaged as damage:
                raise UsageError(
                    f"{damage}: remove that file, or back up to another place"
                ) from damage
            about = replace(about, cluster=found.cluster, cluster_id=found.cluster_id)
            for copy in found.groups:
                known = self._earlier.get(copy.group)
                if known is None or known.index <= copy.index:
                    self._earlier[copy.group] = copy
            if name.endswith(m.PARTIAL):
                self._show(f"continues backup {found.id}")
                about = found
                self._copies = {copy.group: copy for copy in found.groups}
        taken = {name.rpartition("/")[2] for name in m.manifests(self._store)}
        while not about.groups and f"{about.id}{m.COMPLETE}" in taken:  # within the same second
            about = replace(about, id=f"{about.id}a")
        return about

    def _note(self, about: m.BackupManifest, copy: m.GroupCopy | None = None) -> None:
        """Note what was copied, if that is due; copy: of the group that is being copied."""
        if time.monotonic() - self._noted_s >= NOTED_EVERY_S or copy is None:
            self._noted_s = time.monotonic()
            groups = {**self._copies, **({} if copy is None else {copy.group: copy})}
            partial = replace(about, groups=tuple(groups.values()))
            self._store.write(about.file(m.PARTIAL), m.encode(partial))

    def _end(self, about: m.BackupManifest, rows: list[QueueRow]) -> m.BackupManifest:
        """Write the manifest: of the queues that the last definitions name."""
        left = {DEFINITIONS_GROUP, *(row.group for row in rows)}
        named = sorted(group for group, one in self._copies.items() if one.whole and group in left)
        manifest = replace(
            about,
            groups=tuple(self._copies[group] for group in named),
            missing=tuple(
                (row.vhost, row.name) for row in self._missing.values() if row.group in left
            ),
        )
        self._store.write(manifest.file(), m.encode(manifest))
        with suppress(FileNotFoundError):
            self._store.remove(manifest.file(m.PARTIAL))
        return m.load(self._store, manifest.file())

    # ------------------------------------------------------------ groups

    def _definitions(self, about: m.BackupManifest) -> tuple[m.BackupManifest, list[QueueRow]]:
        def read(held: HeldGroup) -> list[QueueRow]:
            return msgspec.msgpack.decode(self._whole(held, "queues"), type=list[QueueRow])

        held, rows = self._copy(about, QueueRow("", "", DEFINITIONS_GROUP, True, False), read)
        if about.cluster_id and about.cluster_id != held.cluster_id:
            raise UsageError(
                f"{self._store} has backups of another cluster ({about.cluster}, id "
                f"{about.cluster_id}); this is {held.cluster}, id {held.cluster_id}: back it up "
                "to another place"
            )
        about = replace(
            about,
            cluster=held.cluster,
            cluster_id=held.cluster_id,
            cluster_version=held.cluster_version,
        )
        self._note(about)
        return about, rows

    def _queue(self, about: m.BackupManifest, row: QueueRow) -> None:
        try:
            self._copy(about, row, lambda held: [])
        except NotFound:
            return  # deleted since: the definitions, read again, do not name it
        except Unavailable as error:
            if not self._skips:
                raise Unavailable(
                    f"queue {row.name!r} of vhost {row.vhost!r}: {error}; start its nodes and run "
                    "this again, which continues, or leave it out with --skip-unreachable"
                ) from error
            self._missing[row.group] = row
            return
        self.done.groups += 1
        if time.monotonic() - self._noted_s >= NOTED_EVERY_S:
            self._note(about)

    def _copy(
        self,
        about: m.BackupManifest,
        row: QueueRow,
        read: Callable[[HeldGroup], list[QueueRow]],
    ) -> tuple[HeldGroup, list[QueueRow]]:
        """Copy a group; a snapshot that is lost meanwhile is replaced by a newer one.

        read  reads more of what is held
        """
        for attempt in range(SNAPSHOTS_LOST_MAX):
            held = self._calls.ask(HoldGroupRequest(row.group))
            try:
                if about.cluster_id in ("", held.cluster_id):
                    self._copies[row.group] = self._held(about, row, held)
                return held, read(held)
            except _Lost as lost:
                self._show(f"{row.name}: {lost}: begins again")
                time.sleep(READ_AGAIN_S * attempt)
            finally:
                with suppress(WarrenError):
                    self._calls.ask(ReleaseHeldRequest(held.node, held.hold))
        raise Unavailable(f"{SNAPSHOTS_LOST_MAX} snapshots of group {row.group} were lost")

    def _held(self, about: m.BackupManifest, row: QueueRow, held: HeldGroup) -> m.GroupCopy:
        """Copy what is held."""
        base = self._base(row, held)
        if base is not None and base.whole and (base.index, base.term) == (held.index, held.term):
            self.done.reused_groups += 1
            self.done.reused_bytes += base.bytes
            return base
        after = 0 if base is None else base.index
        copy = m.GroupCopy(
            row.group,
            row.vhost,
            row.name,
            after,
            held.term,
            held.time_ms,
            held.members,
            (),
            () if base is None else self._needed(held, base),
        )
        self.done.reused_bytes += sum(file.bytes for file in copy.entries)
        for data, ends in self._files(self._pieces(held, "entries", after)):
            name = self._put(data)
            file = m.EntriesFile(*name, ends[0], ends[-1], len(ends))
            copy = replace(copy, index=file.last, entries=(*copy.entries, file))
            self._note_part(about, copy)
        snapshot = []
        whole = bytearray()
        for piece in self._pieces(held, "snapshot"):
            whole += piece
            if len(whole) >= DATA_FILE_BYTES:
                snapshot.append(m.DataFile(*self._put(whole)))
                whole = bytearray()
        if whole:
            snapshot.append(m.DataFile(*self._put(whole)))
        return replace(copy, index=held.index, snapshot=tuple(snapshot))

    def _note_part(self, about: m.BackupManifest, copy: m.GroupCopy) -> None:
        if time.monotonic() - self._noted_s >= NOTED_EVERY_S:
            self._note(about, copy)

    def _base(self, row: QueueRow, held: HeldGroup) -> m.GroupCopy | None:
        """Return an earlier copy of which the entries need not be copied again."""
        known = [copies.get(row.group) for copies in (self._earlier, self._copies)]
        found = [copy for copy in known if copy is not None and copy.index <= held.index]
        return max(found, key=lambda copy: (copy.index, copy.whole), default=None)

    def _needed(self, held: HeldGroup, base: m.GroupCopy) -> tuple[m.EntriesFile, ...]:
        """Return the files of a copy with an entry that what is held refers to."""
        if not base.entries:
            return ()
        live = array("Q")
        live.frombytes(self._whole(held, "live"))
        return tuple(
            file
            for file in base.entries
            if bisect_left(live, file.last + 1) > bisect_left(live, file.first)
        )

    # ------------------------------------------------------------ bytes

    def _pieces(self, held: HeldGroup, part: BackupPart, position: int = 0) -> Iterator[bytes]:
        offset, more = 0, True
        while more:
            asked = ReadHeldRequest(held.node, held.hold, part, position, offset)
            try:
                found = self._calls.ask(asked)
            except NotFound as error:
                raise _Lost(str(error)) from error
            position, offset, more = found.position, found.offset, found.more
            self.done.bytes += len(found.data)
            self._pace.read(len(found.data))
            if found.data:
                yield found.data

    def _whole(self, held: HeldGroup, part: BackupPart) -> bytes:
        return b"".join(self._pieces(held, part))

    def _files(self, pieces: Iterator[bytes]) -> Iterator[tuple[bytes, list[int]]]:
        """Yield what is a file of entries, with their indexes."""
        data, ends, at = bytearray(), list[int](), 0
        for piece in pieces:
            data += piece
            for index, end in record_ends(data, at):
                ends.append(index)
                at = end
            if at >= DATA_FILE_BYTES:
                yield bytes(data[:at]), ends
                data, ends, at = data[at:], [], 0
        if at != len(data):
            raise PeerError(f"the entries end within a record, {len(data) - at} bytes after one")
        if ends:
            yield bytes(data), ends

    def _put(self, data: bytes | bytearray) -> tuple[str, int]:
        """Write a file, unless it is there; return its name and size."""
        file = m.DataFile(hashlib.sha256(data).hexdigest(), len(data))
        self._store.write(file.name, bytes(data))
        return file.sha256, file.bytes


class _Pace:
    """Sleeps so that no more than so many bytes are read per second; 0: any number."""

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_s = time.monotonic()

    def read(self, count: int) -> None:
        """Note bytes that were read, and wait until the next may be."""
        if self._rate:
            self._free_s = max(self._free_s, time.monotonic()) + count / self._rate
            time.sleep(max(0.0, self._free_s - time.monotonic()))


def unreferenced(store: BackupStore) -> list[str]:
    """Return the files that no backup in this place names, nor one that was cut."""
    named = {
        name
        for suffix in (m.COMPLETE, m.PARTIAL)
        for one in m.manifests(store, suffix)
        for name in m.load(store, one).files
    }
    held = [
        f"data/{folder:02x}/{name}"
        for folder in range(256)
        for name in store.names(f"data/{folder:02x}")
    ]
    return [name for name in held if name not in named]
