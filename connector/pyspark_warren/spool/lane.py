"""The owner's view of a lane: it takes deliveries, appends rows, settles them."""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
from array import array
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_warren.errors import (
    CheckpointBehindError,
    CheckpointError,
    FencedError,
    SpoolError,
    SpoolLostError,
)
from pyspark_warren.options.specs import AMQP
from pyspark_warren.rows.identities import IDENTITY_BYTES
from pyspark_warren.spool.files import LaneFiles, LaneFolder
from pyspark_warren.spool.layout import (
    DESCRIPTION,
    SCHEMA,
    SPOOL_FORMAT,
    Epoch,
    Roster,
    SpoolFile,
    read_identities,
    write_json,
    write_rows,
)
from pyspark_warren.spool.recognise import OLD, Counts, RowMemory, delivery_counts, identities_of
from pyspark_warren.spool.search import NONE_DECIDED, DecidedRows
from pyspark_warren.spool.store import Fill, SpoolPlace

log = logging.getLogger("pyspark_warren")

KEEP_IDENTITIES: Final = 65_536
"""Settled rows that are remembered by default. A consumer has at most `prefetch` messages that are
not acknowledged, but a node of RabbitMQ that is killed may forget more acknowledgements of a
classic queue than that: it writes them in groups."""


@dataclass(frozen=True, slots=True)
class LaneUse:
    """What a receiver says when it takes a lane over.

    keep                 settled rows that are remembered of each session, to recognise them: at
                         least twice the prefetch
    seen                 the highest position that the checkpoint's offsets name
    acked_when_spooled   ackMode=spool: rows are acknowledged before they are settled
    decided              single rows of which something is decided
    known                a checkpoint names the reader, so its spool was described before
    """

    vhost: str
    queue: str
    keep: int = KEEP_IDENTITIES
    seen: int = 0
    acked_when_spooled: bool = False
    decided: DecidedRows = NONE_DECIDED
    known: bool = False
    broker: str = AMQP


class LaneWriter:
    """A lane that this process owns.

    After FencedError or SpoolError the writer is broken: what was to be done may still happen at
    the store, so nothing more is done under this epoch. Take the lane over again.

    Invariant: settled <= end; every row before `end` is in a valid file or settled.
    """

    def __init__(self, folder: LaneFolder, use: LaneUse, epoch: Epoch, files: LaneFiles) -> None:
        self._folder = folder
        self._epoch = epoch
        self._broken = ""
        self._files = list(files.files)
        self._marks = list(files.marks)
        self._marked = files.settled
        self._memory = RowMemory(files.settled, use.keep, use.acked_when_spooled, use.decided)
        self.end = files.end
        self.recognised = 0

    @classmethod
    def take_over(cls, place: SpoolPlace, reader: str, use: LaneUse, token: str = "") -> LaneWriter:
        """Become the owner of a reader's lane.

        token   16 hexadecimal digits; drawn when empty
        raises  FencedError, SpoolError, SpoolLostError; CheckpointBehindError before anything is
                taken over
        """
        folder = LaneFolder(place, reader, accept_loss=False)
        with place.named("taking over"):
            if use.known:
                _check_is_there(place, reader)
                _check_not_behind(folder, use.seen)
            place.store.make(folder.path)
            describe(place, reader, use.vhost, use.queue, use.broker)
            epoch = folder.claim(token or secrets.token_hex(8))
            _check_owner(folder, epoch)
            try:
                files = _without_torn(folder, folder.read(), use)
            except (SpoolError, SpoolLostError):
                # A newer owner removes what it does not need, under this listing.
                _check_owner(folder, epoch)
                raise
            if files.end < use.seen:
                _check_owner(folder, epoch)
                raise SpoolLostError(folder.lost([(files.end, use.seen)]))
            writer = cls(folder, use, epoch, files)
            writer._remember(files)
            # The order counts: see "Taking over" in the package's text.
            names = tuple(f.name for f in (*files.files, *files.marks))
            roster = Roster(epoch, files.end, files.settled, names)
            place.store.write(folder.path, epoch.roster, _filled(roster.to_bytes()))
            _check_owner(folder, epoch)
            _clean(folder, epoch, files)
        return writer

    # -------------------------------------------------------------- positions

    @property
    def settled(self) -> int:
        """Rows before this position are committed."""
        return self._memory.settled

    # -------------------------------------------------------------- sessions

    def begin_session(self, counting: bool = False, compared: bool = False) -> int:
        """Return the number of a new session: one consumer on one channel.

        counting  a message that the broker sends to it again has a higher delivery count
        compared  the broker does not mark all that it delivers again
        """
        return self._memory.begin_session(counting, compared)

    def end_session(self, session: int, unsure: Sequence[bytes] = ()) -> None:
        """End a session: the broker may deliver again what it has not seen acknowledged.

        unsure  identities of messages without an id that it may not have seen acknowledged


        Deliveries of that session which were not given to `take` are dropped from here on: the
        broker delivers them again, and given late they would have a second row.
        """
        self._memory.end_session(session, unsure)

    # -------------------------------------------------------------- rows

    def take(
        self, session: int, batch: pa.RecordBatch, known: bytes | None = None
    ) -> Sequence[int]:
        """Append the deliveries that are no rows yet; return each delivery's position.

        batch   of rows.SCHEMA, in the order of the channel
        known   their identities; None: those of AMQP 0.9.1
        returns when the rows are durable and the lane is still owned: a delivery may be
                acknowledged as soon as its position may
        raises  FencedError, SpoolError: nothing of the batch may be acknowledged
        """
        assert session in self._memory.live, session
        self._check_usable()
        if not batch.schema.equals(SCHEMA):
            raise AssertionError(f"rows of {batch.schema}, wanted {SCHEMA}")
        identities = identities_of(batch) if known is None else known
        again = pc.indices_nonzero(batch.column("redelivered")).to_pylist()
        if not again and not self._memory.compares(session):
            first = self.end
            self._memory.add(first, identities, session)
            self._append(batch, identities)
            return range(first, self.end)
        positions, new = self._recognise(session, identities, set(again), batch)
        self.recognised += batch.num_rows - len(new)
        if len(new) == batch.num_rows:
            self._append(batch, identities)
        elif new:
            cuts = (slice(row * IDENTITY_BYTES, (row + 1) * IDENTITY_BYTES) for row in new)
            self._append(batch.take(pa.array(new)), b"".join(identities[cut] for cut in cuts))
        return positions

    def _recognise(
        self, session: int, identities: bytes, again: Set[int], batch: pa.RecordBatch
    ) -> tuple[array[int], list[int]]:
        """Return each delivery's position, and which deliveries are no rows yet.

        One after the other: the broker may deliver a message twice within one batch.
        """
        memory, positions, next_row = self._memory, array("q"), self.end
        new: list[int] = []
        counts: Counts | None = None
        properties = batch.column("properties")
        for row in range(batch.num_rows):
            identity = identities[row * IDENTITY_BYTES : (row + 1) * IDENTITY_BYTES]
            if row in again:
                needed = memory.needs_counts(identity, session)
                counts = delivery_counts(properties[row].as_py()) if needed else None
                found = memory.match(identity, session, counts)
            else:
                found = memory.match_first(identity, session)
            if found is None:
                found = next_row
                next_row += 1
                new.append(row)
                memory.add(found, identity, session)
                if row in again:
                    memory.note_returned(identity, found, session)
                    memory.note_counts(found, session, counts)
            positions.append(found)
        return positions, new

    def _append(self, batch: pa.RecordBatch, identities: bytes) -> None:
        """Write a file and look whether the lane is still owned: then its rows count."""
        file = SpoolFile(self.end, batch.num_rows, self._epoch)
        if not file.rows:
            return
        with self._breaking(f"writing rows {file.first} to {file.end - 1}"):
            self._write(file.name, lambda sink: write_rows(sink, batch, identities))
            _check_owner(self._folder, self._epoch)
        self._files.append(file)
        self.end = file.end

    # -------------------------------------------------------------- settled rows

    def settle(self, position: int) -> None:
        """Take note that Spark has committed the rows before the position; remove their files.

        A repeat and a lower position change nothing.
        raises  SpoolLostError for a position that no row has; FencedError, SpoolError
        """
        self._check_usable()
        if position > self.end:
            raise SpoolLostError(self._folder.lost([(self.end, position)]))
        if position <= self.settled:
            return
        gone = [file for file in self._files if file.end <= position]
        if gone:
            with self._breaking(f"settling rows before {position}"):
                self._mark(position)
                # 1. Files go.  2. A successor lists the lane before that or during it.
                # Without this check it might see neither the mark nor the files, and begin at an
                # old position. With it, its listing is later than the mark.
                _check_owner(self._folder, self._epoch)
                self._folder.remove(file.name for file in gone)
            self._files = [file for file in self._files if file.end > position]
        self._memory.settle(position)
        if gone:
            self._prune()

    def decide(self, decided: DecidedRows) -> None:
        """Note what is decided of single rows; it replaces what was noted before."""
        self._memory.decided = decided

    def _mark(self, position: int) -> None:
        first, found = self._memory.identities(self._marked, position)
        mark = SpoolFile(first, position - first, self._epoch, "settled")
        self._write(mark.name, _filled(found))
        self._marks.append(mark)
        self._marked = position

    def _write(self, name: str, fill: Fill) -> None:
        """Write a file; raises FencedError when a successor has removed it amid the write.

        1. This receiver stands still with a file begun.  2. Its successor removes what was begun.
        3. The receiver continues, and its file is not there to be given its name.
        """
        try:
            self._folder.place.store.write(self._folder.path, name, fill)
        except FileNotFoundError:
            _check_owner(self._folder, self._epoch)
            raise

    def _prune(self) -> None:
        """Remove marks of rows that are not remembered any more, but not the last mark."""
        *older, last = self._marks
        old = [mark for mark in older if not self._memory.remembers(mark.first, mark.end)]
        if old:
            with self._breaking("removing what is not remembered"):
                self._folder.remove(mark.name for mark in old)
            self._marks = [mark for mark in older if mark not in old] + [last]

    # -------------------------------------------------------------- steps

    def _remember(self, files: LaneFiles) -> None:
        """Read the identities of the lane's rows; those of settled rows from the marks."""
        place, room = self._folder.place, self._memory.pinned_max
        end = min([files.settled] + [file.first for file in files.files])
        pieces: list[tuple[int, bytes]] = []
        for mark in reversed(files.marks):
            first, last = mark.first, min(mark.end, end)
            if first < last and room > 0:
                # A former owner may remove a mark that it has forgotten: see `_prune`.
                with contextlib.suppress(FileNotFoundError):
                    with self._folder.open(mark.name) as source:
                        pieces.append((first, source.read()[: (last - first) * IDENTITY_BYTES]))
                end = first
                room -= last - first
        for first, identities in reversed(pieces):
            self._memory.add(first, identities, OLD)
        for file in files.files:
            with place.named(f"reading file {file.name}"), self._folder.open(file.name) as source:
                self._memory.add(file.first, read_identities(source), OLD)

    def _check_usable(self) -> None:
        if self._broken:
            raise SpoolError(
                f"spool {self._folder.place.shown}: this receiver must take its lane over again: "
                f"{self._broken}"
            )

    @contextlib.contextmanager
    def _breaking(self, doing: str) -> Iterator[None]:
        """Name errors, and break the writer when there is one."""
        with self._folder.place.named(doing):
            try:
                yield
            except BaseException as wrong:
                self._broken = self._broken or f"{doing}: {wrong}"
                raise


def _filled(data: bytes) -> Fill:
    def fill(sink: pa.NativeFile) -> None:
        sink.write(data)

    return fill


def _check_owner(folder: LaneFolder, epoch: Epoch) -> None:
    """Raise FencedError unless the epoch's claim is the highest one, SpoolLostError: none is."""
    claims = folder.claims()
    if not claims:
        raise SpoolLostError(
            f"the spool's lane {folder.path!r} was removed under its receiver. Restore it; or "
            "start the query with a new checkpoint: what was not acknowledged is delivered again"
        )
    if claims[-1] != epoch:
        raise FencedError(
            f"the spool's lane {folder.path!r} was taken over from epoch {epoch.number}: epoch "
            f"{claims[-1].number} has it. Two drivers use the checkpoint, or a copy of it: stop "
            "one of them"
        )


def _check_is_there(place: SpoolPlace, reader: str) -> None:
    """Raise SpoolLostError when a reader that a checkpoint names has no spool.

    1. ackMode=spool: messages are acknowledged, and no offset names a row yet.  2. The spool is
    removed.  3. A new one would begin at the position of the checkpoint, 0, as if nothing were
    missing. So a spool is described before a checkpoint names its reader.
    """
    if DESCRIPTION not in place.store.sizes(place.reader_folder(reader)):
        raise SpoolLostError(
            f"the spool at {place.shown} has nothing of reader {reader!r}, which the checkpoint "
            "names: it was removed or moved, or spoolLocation was changed. Restore it; or start "
            "the query with a new checkpoint: what was not acknowledged is delivered again"
        )


def _check_not_behind(folder: LaneFolder, seen: int) -> None:
    """Raise CheckpointBehindError when rows are settled that the checkpoint has not read.

    It is an older copy. The query that is ahead, if it runs, keeps the lane. Its owner may change
    the folder meanwhile: what is wrong with the files is found by `take_over`, as their owner.
    """
    with contextlib.suppress(SpoolError, SpoolLostError):
        settled = folder.read().settled
        if settled > seen:
            raise CheckpointBehindError(folder.behind(settled, seen))


def describe(place: SpoolPlace, reader: str, vhost: str, queue: str, broker: str) -> None:
    """Write what a reader's spool is of into its folder, or check it.

    raises  SpoolError; CheckpointError: its rows came over the other protocol. 1. A broker is
            replaced by one that speaks the other protocol.  2. Rows that are not acknowledged come
            again, with the identities of that protocol, which no row has.  3. They would be doubled
    """
    folder = place.reader_folder(reader)
    mine = {"format": SPOOL_FORMAT, "queue": queue, "reader": reader, "vhost": vhost}
    if broker != AMQP:  # which the first spools did not say
        mine["broker"] = broker
    if DESCRIPTION in place.store.sizes(folder):
        with place.store.open(f"{folder}/{DESCRIPTION}") as source:
            data = source.read()
        try:
            found = json.loads(data)
        except ValueError:
            found = None
        if found == mine:
            return
        before = (found or {}).get("broker", AMQP)
        if found is not None and {**found, "broker": broker} == {**mine, "broker": broker}:
            raise CheckpointError(
                f"the spool of reader {reader!r} was filled with broker={before}, and the query "
                f"has broker={broker} now: messages that were received and not acknowledged would "
                f"not be recognised. Give broker={before} and read the queue to its end with "
                "availableNow, or use another checkpointLocation and spoolLocation: what was not "
                "acknowledged is delivered again"
            )
        if found is not None or place.store.whole:
            raise SpoolError(
                f"{DESCRIPTION} says {data[:200]!r}, the query's spool is {write_json(mine)!r}; "
                "give the query a spoolLocation of its own, or upgrade the connector when the "
                "format is newer"
            )
    place.store.write(folder, DESCRIPTION, _filled(write_json(mine)))


def _without_torn(folder: LaneFolder, files: LaneFiles, use: LaneUse) -> LaneFiles:
    """Leave out the last file when its writer was killed before it was whole.

    Only where the store shows parts of files, and only for rows that no offset names.
    """
    last = files.files[-1] if files.files else None
    if folder.place.store.whole or last is None or last.first < use.seen:
        return files
    try:
        with folder.open(last.name) as source:
            if len(read_identities(source)) == last.rows * IDENTITY_BYTES:
                return files
        why = "has other rows than its name says"
    except (OSError, pa.ArrowException) as wrong:
        why = str(wrong)
    log.warning("%s: file %s is left out, it is not whole: %s", folder.path, last.name, why)
    end = max(last.first, files.settled)
    stale = (*files.stale, last.name)
    return LaneFiles(files.files[:-1], files.marks, files.settled, end, stale, files.listing)


def _clean(folder: LaneFolder, epoch: Epoch, files: LaneFiles) -> None:
    """Remove what older epochs left, as far as it was listed."""
    folder.remove(files.stale)
    folder.remove(name for old, name in files.listing.temporaries if old < epoch)
    folder.remove(old.roster for old in files.listing.rosters if old < epoch)
    for old in folder.claims():
        if old < epoch:
            folder.place.store.remove(f"{folder.claims_path}/{old.claim}")
