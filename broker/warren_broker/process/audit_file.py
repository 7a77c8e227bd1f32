"""The files of the audit log: lines of JSON, written and searched on a thread of their own."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from warren_broker.process.logs import is_told
from warren_broker.process.rotating_file import RotatingFile
from warren_broker.settings.audit_settings import AuditSettings
from warren_wire.admin.audit import AuditRecord, FoundRecords, ListAuditRequest

log = logging.getLogger(__name__)
FILE: Final = "audit.jsonl"
RECORDS_WAITING_MAX: Final = 10_000
"""Records that wait to be written; further ones are lost, and counted."""
SEARCHES_MAX: Final = 16
RECORDS_RETRY_S: Final = 1.0
READ_BACK_BYTES: Final = 64 << 10
SEARCHED_BYTES_MAX: Final = 8 << 20
"""Of the files for one answer."""
Found = Callable[[FoundRecords], None]
_DECODER = msgspec.json.Decoder(AuditRecord)


class AuditFile:
    """Writes records in their order, and looks for them from the newest on.

    1. The disk is full, or hangs.  2. Nothing of the node waits for this thread: records wait in
    memory, up to RECORDS_WAITING_MAX, and are written when there is space.  3. What exceeds that
    is lost; how much is logged, counted in `lost`, and in the node's condition.

    post  has a function called by the loop's thread
    last  the highest number of the records that were there
    lost  number of records that were lost since the start
    """

    def __init__(
        self, directory: Path, settings: AuditSettings, post: Callable[[Callable[[], None]], None]
    ) -> None:
        kept = (settings.file_bytes_max, settings.files_max)
        self._path = directory / FILE
        self._file = RotatingFile(self._path, *kept, 0o600)
        self._post = post
        self._changed = threading.Condition()
        self._waiting: deque[AuditRecord] = deque()
        self._searches: deque[tuple[ListAuditRequest, Found]] = deque()
        self._ended = False
        self._failures = 0
        self.lost = 0
        self.last = self._last_number()
        self._thread = threading.Thread(target=self._run, name="audit log", daemon=True)
        self._thread.start()

    def write(self, record: AuditRecord) -> None:
        """Have a record written soon; nothing waits for it."""
        with self._changed:
            if len(self._waiting) >= RECORDS_WAITING_MAX:
                self.lost += 1
                return
            self._waiting.append(record)
            self._changed.notify_all()

    def search(self, request: ListAuditRequest, found: Found) -> None:
        """Call back, on the loop's thread, with what is found; one of too many looks at nothing."""
        with self._changed:
            if len(self._searches) >= SEARCHES_MAX:
                self._post(lambda: found(FoundRecords((), number_before(request))))
                return
            self._searches.append((request, found))
            self._changed.notify_all()

    def end(self, wait_s: float) -> None:
        """Write what waits, and end; a disk that hangs is not waited for longer than that."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._thread.join(wait_s)

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._searches or self._ended)
                records = list(self._waiting)
                searches, self._searches = self._searches, deque()
                if self._ended and not records:
                    return
            written = self._written(records) if records else 0
            with self._changed:
                for _ in range(written):
                    self._waiting.popleft()
                failed = bool(records) and not written
                if failed and self._ended:
                    return
            for request, found in searches:
                self._answer(request, found)
            if failed:
                with self._changed:
                    self._changed.wait_for(lambda: self._searches or self._ended, RECORDS_RETRY_S)

    def _answer(self, request: ListAuditRequest, found: Found) -> None:
        try:
            answer = self._search(request)
        except OSError as error:
            log.warning("the audit log cannot be read: %s", error)
            answer = FoundRecords(())
        self._post(lambda: found(answer))

    def _written(self, records: list[AuditRecord]) -> int:
        """Return how many records were written: all, or none."""
        try:
            self._file.append(b"".join(msgspec.json.encode(one) + b"\n" for one in records))
        except OSError as error:
            self._failures += 1
            if is_told(self._failures):
                log.error(
                    "audit log: records cannot be written to %s: %s; %d wait, %d are lost",
                    self._path,
                    error.strerror or error,
                    len(self._waiting),
                    self.lost,
                )
            return 0
        if self._failures:
            log.warning("audit log: records are written again; %d are lost", self.lost)
            self._failures = 0
        return len(records)

    # ------------------------------------------------------------ reading

    def _last_number(self) -> int:
        try:
            for line in backwards(self._path, self._path.stat().st_size):
                if (record := _decoded(line)) is not None:
                    return record.number
        except OSError:
            pass  # none yet, or it cannot be read: its writing says so
        return 0

    def _search(self, request: ListAuditRequest) -> FoundRecords:
        before = number_before(request)
        wanted, found = request.contains.encode(), list[AuditRecord]()
        left, oldest, since = SEARCHED_BYTES_MAX, 0, request.since * 1_000_000
        for path in self._file.files():
            for line in backwards(path, end_before(path, before)):
                if left <= 0:
                    return FoundRecords(tuple(found), oldest)
                left -= len(line) + 1
                record = _decoded(line)
                if record is None or record.number >= before:
                    continue
                oldest = record.number
                if oldest < since:
                    return FoundRecords(tuple(found))
                if wanted in line and request.kind in ("", record.kind):
                    if request.user in ("", record.user):
                        found.append(record)
                        if len(found) > request.count:
                            return FoundRecords(tuple(found))
        return FoundRecords(tuple(found))


def number_before(request: ListAuditRequest) -> int:
    """Return the number below which records are asked for."""
    return int(request.before) if request.before else 1 << 62


def _decoded(line: bytes) -> AuditRecord | None:
    try:
        return _DECODER.decode(line)
    except msgspec.DecodeError:
        return None  # half a line: the machine ended as it was written


def end_before(path: Path, number: int) -> int:
    """Return the offset behind the last line with a lower number: numbers rise in a file."""
    with path.open("rb") as file:
        low, high = 0, os.fstat(file.fileno()).st_size
        size = high
        while low < high:
            middle = (low + high) // 2
            file.seek(middle)
            if middle:
                file.readline()  # what is left of the line before
            begin = file.tell()
            record = None
            while line := file.readline():
                record = _decoded(line)
                if record is not None:
                    break
                begin = file.tell()
            if record is None or record.number >= number:
                high = middle
            else:
                low = begin + 1
        file.seek(low)
        if low < size:
            file.readline()
        return file.tell() if low else 0


def backwards(path: Path, end: int) -> Iterator[bytes]:
    """Yield the lines of a file before an offset, the last one first."""
    rest = b""
    with path.open("rb") as file:
        while end > 0:
            begin = max(0, end - READ_BACK_BYTES)
            file.seek(begin)
            lines = (file.read(end - begin) + rest).split(b"\n")
            rest = lines.pop(0)
            yield from (line for line in reversed(lines) if line)
            end = begin
    if rest:
        yield rest
