"""Compaction: rewrite or remove files in an order that is safe at a crash after any step.

A cycle; each step begins when the one before is done:

1. the snapshots passed to `run` are written, once the log is on disk up to their last entries
2. each group drops the entries that its snapshot made unnecessary; the plan is made from the rest
3. segments are written, then the manifest, once the log is on disk as far as the manifest covers it
4. the entries' places are updated, then files that are not needed are removed, or kept as spare
   files (`spare_files`)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from warren_raft.storage import rewrite, segment
from warren_raft.storage.background_writer import BackgroundWriter
from warren_raft.storage.catalog import Segment
from warren_raft.storage.errors import EntryDamaged
from warren_raft.storage.format import RECORD_HEADER_BYTES
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.group_store import GroupStore
from warren_raft.storage.log_files import LogFiles
from warren_raft.storage.manifest import NAME, GroupRow, Manifest
from warren_raft.storage.rewrite import Source, Target
from warren_raft.storage.segment import SegmentName
from warren_raft.storage.snapshot import Snapshot
from warren_raft.storage.snapshot import file_key as snapshot_key
from warren_raft.storage.spare_files import SpareFiles
from warren_raft.storage.wal import Wal, file_number
from warren_raft.types import Entry, GroupId, Index

log = logging.getLogger("warren.raft")

SMALL_SEGMENTS_MAX = 8
"""Number of adjacent small segments above which they are merged."""
COPY_WAITS_BYTES = 1 << 20
COPY_WAITS_FILES = 2
"""A file with so much to be copied waits until so many complete files follow it."""
REPORTED_AT_ONCE = 1_000
"""Damaged entries of which the repair begins in one turn."""


@dataclass(slots=True)
class Plan:
    """The plan of a cycle.

    retired   WAL files that need not be replayed any more, once the manifest is written
    replaced  segments with remaining entries in a target, or without any
    moves     per target, per source: the logs of its rows, in their order
    """

    targets: list[Target] = field(default_factory=list)
    moves: list[list[list[GroupLog]]] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)
    replaced: list[Segment] = field(default_factory=list)
    manifest: Manifest | None = None


@dataclass(eq=False, repr=False)
class Compactor:
    """The compactor runs one cycle at a time; see the module.

    damaged            files with a damaged record: they are rewritten as soon as possible, with
             what other members sent for entries that are retained
    left     files with a damaged entry that no other member has: they are not rewritten
    manifest_damaged   the manifest's file is damaged: it is to be written again
    snapshots_damaged  groups of which another snapshot is to be taken: the file of the present
                       one is damaged, or it retains an entry that is lost and not needed

    Invariant: WAL files are retired in their order, the oldest first. So no record that is
    replayed, and no row of a segment of later files, is older than a row of one of earlier files:
    entries that a new leader replaced come before those that replaced them.

    others_have   starts the repair of a damaged entry; False: no other member can have it
    rewritten_bytes, snapshots  written since the start
    space_is_low  gives back what is not needed: the log itself writes to space that is there
                  already, and may not notice for long that the disk is full
    """

    log_files: LogFiles
    groups: Mapping[GroupId, GroupStore]
    wal: Wal
    background_writer: BackgroundWriter
    spares: SpareFiles
    file_bytes: int
    others_have: Callable[[EntryDamaged], bool]
    space_is_low: Callable[[], None]
    _when_done: Callable[[], None] = lambda: None
    _gone: list[Path] = field(default_factory=list)
    damaged: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    snapshots_damaged: set[GroupId] = field(default_factory=set)
    manifest_damaged: bool = False
    busy: bool = False
    cycles: int = 0
    rewritten_bytes: int = 0
    snapshots: int = 0

    def run(self, snapshots: Sequence[Snapshot], done: Callable[[], None] = lambda: None) -> None:
        """Begin a cycle; `done` is called at its end."""
        assert not self.busy
        self.busy = True
        self._when_done = done
        if not snapshots:
            self._plan()
            return
        log_files = self.log_files
        kept = list(snapshots)
        # 1. A machine has applied 9, its own disk holds 7: the others' disks made 9 committed.
        # 2. The snapshot of 9 is written.  3. The power fails: 8 is lost here, and the snapshot
        # refers to it.  So the log up to the snapshot's last entry is on disk first.
        # Replayed by tests/raft/storage/test_compaction_crash.py
        self.wal.submit(
            lambda: self.background_writer.run(
                lambda: rewrite.write_snapshots(
                    log_files.files, log_files.directory.snapshots, kept
                ),
                lambda _: self._snapshots_written(kept),
                self._full,
            )
        )

    def remove_unneeded(self) -> None:
        """Remove the oldest WAL files if only deleted groups have records in them.

        Not during a cycle, which reads them; a cycle calls this at its end.
        """
        gone = self.log_files.use.unneeded(self.wal.closed_below)
        if gone and not self.busy:
            self._drop_oldest(gone)

    def _drop_oldest(self, files: list[int]) -> None:
        """Remove the oldest WAL files, in which nothing is live, and change nothing else."""
        self.busy = True
        self._when_done = lambda: None
        self._carry_out(Plan(retired=files))

    def _full(self, error: OSError) -> None:
        log.warning("no space to rewrite the log (%s): will be retried", error)
        self.space_is_low()
        self.busy = False
        self.cycles += 1
        self._when_done()

    def _end(self) -> None:
        self.busy = False
        self.cycles += 1
        self._when_done()
        self.remove_unneeded()

    # ------------------------------------------------------------ snapshots

    def _snapshots_written(self, snapshots: list[Snapshot]) -> None:
        log_files = self.log_files
        gone: list[Path] = []
        for taken in snapshots:
            self.snapshots_damaged.discard(taken.group)
            group = self.groups.get(taken.group)
            path = log_files.snapshot_path(taken.group, taken.index)
            if group is None or group.born != taken.born or group.snapshot_index > taken.index:
                gone.append(path)
                continue
            if group.snapshot_index and group.snapshot_index != taken.index:
                gone.append(log_files.snapshot_path(taken.group, group.snapshot_index))
            group.adopt(taken)
            self.snapshots += 1
        self._gone += gone
        self._plan()

    # ------------------------------------------------------------ planning

    def _plan(self) -> None:
        plan = Plan()
        tally: dict[int, list[int]] = {}
        for group in self.groups.values():
            if not group.log.volatile:
                group.log.tally(tally)
        self._retire(plan, tally)
        self._merge(plan, tally)
        self._carry_out(plan)

    def _carry_out(self, plan: Plan) -> None:
        if plan.retired or self._listed_deleted() or self.manifest_damaged:
            plan.manifest = self._manifest(plan)
        if plan.manifest is None and not plan.targets and not plan.replaced:
            self._remove([], set())
            return
        self.wal.submit(
            lambda: self.background_writer.run(
                lambda: self._write(plan),
                lambda damaged: self._written(plan, damaged),
                self._full,
            )
        )

    def _listed_deleted(self) -> bool:
        """Whether a group that the manifest names was deleted since."""
        return any(group not in self.groups for group in self.log_files.listed)

    def _manifest(self, plan: Plan) -> Manifest:
        log_files = self.log_files
        rows = []
        for number, group in sorted(self.groups.items()):
            if not group.log.volatile:
                state = group.hard_state
                vote, last = state.vote or "", group.log.last
                held = last if group.incoming_file is None else 0
                rows.append(
                    GroupRow(number, group.born, group.created, state.term, vote, last, held)
                )
        first = plan.retired[-1] + 1 if plan.retired else log_files.first_file
        disk = int(log_files.directory.identity.disk, 16)
        return Manifest(first, self.wal.position, tuple(rows), disk)

    def _may_retire(self, file: int) -> bool:
        """Return whether a file's entries may move to a segment: no group needs its other records.

        Whether they are applied is irrelevant: otherwise one group that has lost its majority, or
        that is not started, would keep every file of the node.
        """
        log_files = self.log_files
        for number in log_files.use.live[file]:
            group = self.groups.get(number)
            if group is None:
                continue
            if group.incoming_file is not None and group.incoming_file <= file:
                return False
        return True

    def _retire(self, plan: Plan, tally: dict[int, list[int]]) -> None:
        log_files = self.log_files
        sparse: list[int] = []
        held = 0
        for file in sorted(log_files.use.live):
            if file >= self.wal.closed_below or not self._may_retire(file):
                break
            count, data = tally.get(file, (0, 0))
            kept = data + count * RECORD_HEADER_BYTES
            if kept and not log_files.files.exists(log_files.wal_path(file)):
                self.damaged.add(file)  # removed by hand: what is kept of it is to be repaired
            whole = file not in self.damaged and 2 * kept >= log_files.wal_bytes(file)
            sealed = file in self.left or whole
            if not sealed and self._waits(file, kept):
                break
            plan.retired.append(file)
            if sealed:
                self._copy(plan, sparse)
                sparse, held = [], 0
                self._seal(plan, file)
                continue
            if kept:
                sparse.append(file)
                held += kept
            if held >= self.file_bytes:
                self._copy(plan, sparse)
                sparse, held = [], 0
        self._copy(plan, sparse)

    def _waits(self, file: int, kept: int) -> bool:
        """Return whether a file is not copied yet, because what is kept of it may soon be dead.

        1. A batch of 120 MiB is settled, and another one is published.  2. The file in which the
        first ends is complete; a quarter of it is the next batch's.  3. That is copied, and settled
        a second later. Files are retired in their order, so those that follow wait with it: none
        waits while one is to be repaired, or the disk was low on space.
        """
        if kept < COPY_WAITS_BYTES or self.damaged or self.spares.paused:
            return False
        return self.wal.closed_below - file <= COPY_WAITS_FILES

    def source(self, identity: int, path: Path) -> Source:
        """Return the retained entries of a file."""
        return self._source(identity, path)[0]

    def _source(self, identity: int, path: Path) -> tuple[Source, list[GroupLog]]:
        log_files = self.log_files
        rows, logs = [], []
        for number, group in sorted(self.groups.items()):
            if not group.log.volatile:
                found = group.log.rows(identity)
                if found:
                    rows.append((number, group.born, found))
                    logs.append(group.log)
        healed = self._healed_in(identity)
        return Source(identity, path, log_files.salts[identity], rows, healed), logs

    def _healed_in(self, file: int) -> dict[tuple[GroupId, Index], Entry]:
        """Copies, sent by other members, of entries that are damaged in that file."""
        if file not in self.damaged:
            return {}
        return {
            (number, entry.index): entry
            for number, group in self.groups.items()
            for entry in group.healed_in(file)
        }

    def _seal(self, plan: Plan, file: int) -> None:
        log_files = self.log_files
        path = log_files.wal_path(file)
        name = SegmentName(file, file, 0)
        source, _ = self._source(file, path)
        index = log_files.directory.segments / (name.stem() + segment.INDEX_SUFFIX)
        size = log_files.wal_bytes(file)
        plan.targets.append(Target(name, [source], path, index, source.salt, True, size))
        plan.moves.append([])

    def _copy(self, plan: Plan, files: list[int]) -> None:
        if files:
            name = SegmentName(files[0], files[-1], 0)
            self._rewrite(plan, name, [(file, self.log_files.wal_path(file)) for file in files])

    def _rewrite(self, plan: Plan, name: SegmentName, files: list[tuple[int, Path]]) -> None:
        directory = self.log_files.directory.segments
        found = [self._source(identity, path) for identity, path in files]
        plan.targets.append(
            Target(
                name,
                [source for source, _ in found],
                directory / (name.stem() + segment.DATA_SUFFIX),
                directory / (name.stem() + segment.INDEX_SUFFIX),
                rewrite.salt_of(name),
                False,
            )
        )
        plan.moves.append([logs for _, logs in found])

    def _merge(self, plan: Plan, tally: dict[int, list[int]]) -> None:
        run: list[Segment] = []
        held, sparse, copied = 0, False, 0

        def close() -> None:
            nonlocal run, held, sparse, copied
            if run and (sparse or len(run) > SMALL_SEGMENTS_MAX) and copied < 4 * self.file_bytes:
                copied += held
                generation = max(s.name.generation for s in run) + 1
                name = SegmentName(run[0].name.first, run[-1].name.last, generation)
                self._rewrite(plan, name, [(s.id, s.data) for s in run])
                plan.replaced += run
            run, held, sparse = [], 0, False

        for found in self.log_files.segments:
            count, data = tally.get(found.id, (0, 0))
            kept = data + count * RECORD_HEADER_BYTES
            if not count:
                plan.replaced.append(found)
                continue
            if found.id in self.left:
                close()
                continue
            is_sparse = 2 * kept < found.bytes or found.id in self.damaged
            if not is_sparse and 8 * kept > self.file_bytes:
                close()
                continue
            if held + kept > self.file_bytes:
                close()
            run.append(found)
            held += kept
            sparse |= is_sparse
        close()

    # ------------------------------------------------------------ execution

    def _leave(self, damage: EntryDamaged) -> None:
        """Skip a file from now on because no other member has its damaged entry."""
        if damage.file not in self.left:
            self.left.add(damage.file)
            log.critical(
                "%s. No other member has it; the file is not rewritten. A read of that entry "
                "ends this node: restore the file from a copy, or delete the queue",
                damage,
            )

    def _report(self, damaged: list[EntryDamaged], done: int = 0) -> None:
        """Start the repair of damaged entries, some in each turn; then the cycle ends."""
        # 1. A file of the log with 60,000 small entries is missing.  2. The repair of all of them
        # begins in one turn, which takes half a second of CPU; of a full file, several.  3. The
        # other nodes suspect this one, and elect leaders without it.
        # Replayed by tests/raft/runtime/test_removed_files.py
        end = done + REPORTED_AT_ONCE
        for damage in damaged[done:end]:
            if self.others_have(damage):
                self.damaged.add(damage.file)
            else:
                self._leave(damage)
        if end < len(damaged):
            self.background_writer.run(
                lambda: None, lambda _: self._report(damaged, end), self._full
            )
        else:
            self._end()

    def _write(self, plan: Plan) -> list[EntryDamaged]:
        """Write segments and manifest, on the background writer's thread.

        returns  entries that could not be copied; if there are any, nothing was made
        """
        files, path = self.log_files.files, self.log_files.directory.path / NAME
        try:
            for target in plan.targets:
                rewrite.write_segment(files, target)
            damaged = [damage for target in plan.targets for damage in target.damaged]
            if damaged:
                rewrite.take_back(files, plan.targets)
                return damaged
            if plan.manifest is not None:
                rewrite.prepare_manifest(files, path, plan.manifest)
        except OSError:
            # 1. A merged segment is written, but there is no space for the next.  2. This process
            # continues with the old ones, and merges them differently.  3. A start finds both.
            rewrite.take_back(files, plan.targets)
            raise
        if plan.manifest is not None:
            rewrite.put_manifest(files, path)
        return []

    def _written(self, plan: Plan, damaged: list[EntryDamaged]) -> None:
        log_files = self.log_files
        if damaged:
            self._report(damaged)
            return
        self.rewritten_bytes += sum([target.bytes for target in plan.targets])
        made: list[Segment] = []
        for target, moves in zip(plan.targets, plan.moves, strict=True):
            identity = target.name.first if target.in_place else log_files.new_segment_id()
            groups = {number for source in target.sources for number, _, _ in source.rows}
            made.append(
                Segment(
                    identity,
                    target.name,
                    target.in_place,
                    target.data,
                    target.index,
                    target.salt,
                    target.bytes,
                    groups,
                )
            )
            log_files.salts[identity] = target.salt
            log_files.paths[identity] = target.data
            for source, logs, offsets in zip(target.sources, moves, target.offsets, strict=False):
                for one, (_, _, rows), column in zip(logs, source.rows, offsets, strict=True):
                    one.move(rows, source.id, identity, column)
        gone: list[Path] = []
        spoiled = {log_files.path_of(file) for file in self.damaged}
        stay = {s.data for s in made}
        for old in plan.replaced:
            gone.append(old.index)
            gone.append(old.data)
            log_files.forget_file(old.id)
        for file in plan.retired:
            log_files.use.remove(file)
            path = log_files.wal_path(file)
            if path not in stay:
                gone.append(path)
                log_files.forget_file(file)
        self.damaged -= {*plan.retired, *(old.id for old in plan.replaced)}
        replaced = {id(s) for s in plan.replaced}
        kept = [s for s in log_files.segments if id(s) not in replaced]
        log_files.segments = sorted(kept + made, key=lambda s: s.name.first)
        if plan.manifest is not None:
            self.manifest_damaged = False
            log_files.first_file = plan.manifest.first_file
            log_files.listed = {row.group for row in plan.manifest.groups}
        self._remove(gone, spoiled)

    def _remove(self, paths: list[Path], spoiled: set[Path]) -> None:
        """Remove files; those of the log may be kept as spare ones, unless they are spoiled."""
        log_files = self.log_files
        gone = [*paths, *filter(self._superseded, self._gone)]
        self._gone = [path for path in self._gone if not self._superseded(path)]
        if not gone:
            self._end()
            return

        def job() -> None:
            while gone:
                path = gone[0]
                spare = file_number(path.name) is not None and path not in spoiled
                if log_files.files.exists(path) and not (spare and self.spares.keep(path)):
                    log_files.files.remove(path)
                del gone[0]

        def full(error: OSError) -> None:
            self._gone += gone  # the next cycle removes them
            self._full(error)

        self.background_writer.run(job, lambda _: self._end(), full)

    def _superseded(self, path: Path) -> bool:
        """Return whether a file that is to be removed is still not needed.

        1. A snapshot up to 9 is superseded, and cannot be removed for want of space.  2. This
        member is deleted, comes again, and receives a snapshot up to 9.
        """
        key = snapshot_key(path.name)
        group = None if key is None else self.groups.get(key[0])
        if key is None or group is None:
            return True
        return group.incoming_file is None and key[1] < group.snapshot_index
