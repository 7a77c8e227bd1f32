"""Which files of a lane are valid, which receiver owns it, and where its rows are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from pyspark_warren.errors import CheckpointBehindError, SpoolError, SpoolLostError
from pyspark_warren.rows.identities import IDENTITY_BYTES
from pyspark_warren.spool import layout
from pyspark_warren.spool.layout import Epoch, LaneListing, Roster, SpoolFile, Stretch, read_rows
from pyspark_warren.spool.store import SpoolPlace

LISTINGS_MAX: Final = 10
"""How often a lane is listed again when its owner changed meanwhile."""


@dataclass(frozen=True, slots=True)
class LaneFiles:
    """The valid files of a lane.

    files    ascending, none of them settled as a whole
    marks    identities of settled rows, ascending by their end
    settled  rows before it are committed
    end      the position after the last row
    stale    names of files that no row needs: on no roster, or settled
    """

    files: tuple[SpoolFile, ...]
    marks: tuple[SpoolFile, ...]
    settled: int
    end: int
    stale: tuple[str, ...]
    listing: LaneListing


class LaneFolder:
    """The folder of a lane in a store.

    accept_loss  rows that are missing are no error
    """

    def __init__(self, place: SpoolPlace, reader: str, accept_loss: bool) -> None:
        self.place = place
        self.path = place.lane_folder(reader)
        self.claims_path = f"{self.path}/{layout.CLAIMS}"
        self.accept_loss = accept_loss

    # -------------------------------------------------------------- claims

    def claims(self) -> list[Epoch]:
        """Return the claims, ascending."""
        return layout.read_claims(self.place.store.sizes(self.claims_path))

    def claim(self, token: str) -> Epoch:
        """Write a claim above all others."""
        store = self.place.store
        store.make(self.claims_path)
        known = self.claims()
        epoch = Epoch(known[-1].number + 1 if known else 1, token)
        store.write(self.claims_path, epoch.claim, lambda sink: None)
        return epoch

    # -------------------------------------------------------------- files

    def read(self) -> LaneFiles:
        """List the lane and return its valid files; raises SpoolError, SpoolLostError."""
        for _ in range(LISTINGS_MAX):
            listing = layout.read_listing(self.place.store.sizes(self.path))
            try:
                roster = self._highest_roster(listing)
            except FileNotFoundError:
                continue  # a newer owner wrote its own and removed this one
            return self._valid(listing, roster)
        raise SpoolError(
            f"its owners changed {LISTINGS_MAX} times while it was listed; stop all queries but "
            "one that use it"
        )

    def _highest_roster(self, listing: LaneListing) -> Roster | None:
        for epoch in sorted(listing.rosters, reverse=True):
            with self.place.store.open(f"{self.path}/{epoch.roster}") as source:
                roster = Roster.read(epoch, source.read())
            if roster is not None:
                return roster
            # The epoch ended while it wrote its roster. Files come after a whole roster.
            if self.place.store.whole or any(f.epoch == epoch for f in listing.files):
                raise SpoolError(f"file {epoch.roster} is damaged; restore it from a copy")
        return None

    def _valid(self, listing: LaneListing, roster: Roster | None) -> LaneFiles:
        if roster is None:
            names = (f.name for f in (*listing.files, *listing.marks))
            return LaneFiles((), (), 0, 0, tuple(names), listing)
        start, named = roster.start, set(roster.files)
        marks = self._whole_marks(
            (m for m in listing.marks if m.name in named or m.epoch == roster.epoch),
            listing.sizes,
        )
        settled = max([roster.settled] + [mark.end for mark in marks])
        found = [f for f in listing.files if f.name in named or f.epoch == roster.epoch]
        files = tuple(f for f in sorted(found) if f.end > settled)
        end = max([settled] + [f.end for f in files])
        problems = list(_gaps(files, settled, max(start, end)))
        if problems and not self.accept_loss:
            raise SpoolLostError(self.lost(problems))
        kept = {f.name for f in (*files, *marks)}
        stale = tuple(f.name for f in (*listing.files, *listing.marks) if f.name not in kept)
        return LaneFiles(files, marks, settled, max(end, start), stale, listing)

    def _whole_marks(
        self, found: Iterable[SpoolFile], sizes: Mapping[str, int]
    ) -> tuple[SpoolFile, ...]:
        marks = []
        for mark in sorted(found, key=lambda mark: mark.end):
            if sizes[mark.name] == mark.rows * IDENTITY_BYTES:
                marks.append(mark)
            elif self.place.store.whole:
                raise SpoolError(
                    f"file {mark.name} has {sizes[mark.name]} bytes instead of "
                    f"{mark.rows * IDENTITY_BYTES}; restore it from a copy"
                )
        return tuple(marks)

    def lost(self, missing: Iterable[tuple[int, int]]) -> str:
        """Return the text of SpoolLostError for rows (first, end)."""
        rows = ", ".join(f"{first} to {end - 1}" for first, end in missing)
        return (
            f"the spool at {self.place.shown} lacks rows {rows} that the checkpoint counts on: "
            "files were removed, or the spool was moved. Restore them; or start the query with a "
            "new checkpoint: what was not acknowledged is delivered again"
        )

    def behind(self, settled: int, seen: int) -> str:
        """Return the text of CheckpointBehindError for a checkpoint that has read up to `seen`."""
        return (
            f"the spool's lane {self.path!r} is settled up to row {settled}, and the checkpoint "
            f"has read up to row {seen}: it is an older copy. Use the newest copy of the "
            "checkpoint, or a new one with a spool of its own"
        )

    def open(self, name: str) -> pa.NativeFile:
        """Open one of the lane's files."""
        return self.place.store.open(f"{self.path}/{name}")

    def remove(self, names: Iterable[str]) -> None:
        """Remove files of the lane."""
        for name in names:
            self.place.store.remove(f"{self.path}/{name}")


def _gaps(files: Iterable[SpoolFile], settled: int, end: int) -> Iterable[tuple[int, int]]:
    """Yield the rows from `settled` to `end` that no file has; raises SpoolError."""
    at = settled
    before: SpoolFile | None = None
    for file in files:
        if before is not None and file.first < before.end:
            raise SpoolError(f"files {before.name} and {file.name} have rows in common")
        if file.first > at:
            yield at, file.first
        at, before = file.end, file
    if at < end:
        yield at, end


def stretches(place: SpoolPlace, reader: str, start: int, end: int) -> list[Stretch]:
    """Return where the rows start <= position < end are.

    The same positions give the same rows for as long as they are not settled.
    raises  SpoolLostError, SpoolError; CheckpointBehindError when the rows are settled, which are
            those of a batch that the checkpoint does not have as committed
    """
    folder = LaneFolder(place, reader, accept_loss=True)
    before: Mapping[str, int] = {}
    with place.named(f"planning rows {start} to {end - 1}"):
        for _ in range(LISTINGS_MAX):
            found = folder.read()
            pieces, missing = _within(found, start, end)
            # A listing is no snapshot: it may have passed the place of a new owner's roster before
            # that was written, and that of the former one after it was removed.
            if not missing or found.listing.sizes == before:
                break
            before = found.listing.sizes
    if missing:
        if missing[0][0] < found.settled:
            raise CheckpointBehindError(folder.behind(found.settled, start))
        raise SpoolLostError(folder.lost(missing))
    return pieces


def _within(found: LaneFiles, start: int, end: int) -> tuple[list[Stretch], list[tuple[int, int]]]:
    """Return where the rows are, and those that are nowhere as (first, end)."""
    pieces, missing = [], []
    at = start
    for file in found.files:
        first, last = max(file.first, start), min(file.end, end)
        if first >= last:
            continue
        if first > at:
            missing.append((at, first))
        share = found.listing.sizes[file.name] * (last - first) // file.rows
        pieces.append(Stretch(file.name, first - file.first, last - first, first, share))
        at = last
    if at < end:
        missing.append((at, end))
    return pieces, missing


def read_stretch(
    place: SpoolPlace, reader: str, stretch: Stretch, columns: Sequence[str]
) -> pa.RecordBatch:
    """Read columns of rows.SCHEMA; in a local spool the buffers are views of the file.

    raises  SpoolLostError when the file is not there, SpoolError when it is damaged
    """
    folder = LaneFolder(place, reader, accept_loss=False)
    last = stretch.position + stretch.rows
    doing = f"reading rows {stretch.position} to {last - 1} of file {stretch.file}"
    with place.named(doing):
        try:
            source = folder.open(stretch.file)
        except FileNotFoundError:
            raise SpoolLostError(folder.lost([(stretch.position, last)])) from None
        batch = read_rows(source, columns)
        if batch.num_rows < stretch.first_row + stretch.rows:
            raise SpoolError(f"it has {batch.num_rows} rows, fewer than its name says")
        return batch.slice(stretch.first_row, stretch.rows)
