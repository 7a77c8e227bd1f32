"""Reading of a lane's rows by others than its owner: by the driver that plans, by tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from pyspark_warren.amqp.spool.epochs import LISTINGS_MAX, LaneFiles, LaneFolder
from pyspark_warren.amqp.spool.layout import Stretch
from pyspark_warren.amqp.spool.rows import read_rows
from pyspark_warren.amqp.spool.store import SpoolPlace
from pyspark_warren.errors import CheckpointBehindError, SpoolError, SpoolLostError


def stretches(
    place: SpoolPlace, reader: str, lane: str, start: int, end: int, accept_loss: bool = False
) -> list[Stretch]:
    """Return where the rows start <= position < end are.

    The same positions give the same rows for as long as they are not settled.
    accept_loss  return what there is
    raises       SpoolLostError, SpoolError; CheckpointBehindError when the rows are settled, which
                 are those of a batch that the checkpoint does not have as committed
    """
    folder = LaneFolder(place, reader, lane, accept_loss=True)
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
    if missing and not accept_loss:
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
    place: SpoolPlace, reader: str, lane: str, stretch: Stretch, columns: Sequence[str]
) -> pa.RecordBatch:
    """Read columns of rows.SCHEMA; in a local spool the buffers are views of the file.

    raises  SpoolLostError when the file is not there, SpoolError when it is damaged
    """
    folder = LaneFolder(place, reader, lane, accept_loss=False)
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
