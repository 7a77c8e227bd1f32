"""Log and janitor without their threads: a sync, and a rewriting, take virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from warren_raft.errors import StorageError
from warren_raft.storage.errors import WriteFailed
from warren_raft.storage.files import is_full
from warren_raft.storage.format import encode_file_header
from warren_raft.storage.wal import Wal, file_name

Later = Callable[[Callable[[], None]], None]
"""Calls when the next sync is done, unless the process has died by then."""


class NoThread:
    """What stands in the place of the WAL's thread."""

    def __init__(self, **_: Any) -> None:
        pass

    def start(self) -> None:
        """Nothing."""

    def join(self) -> None:
        """Nothing."""


class NoThreading:
    """What stands in the place of the threading module."""

    Thread = NoThread


class SimulatedWal(Wal):
    """Does what `Wal._work` does, in two events: the write at once, the sync later.

    salt    the next one
    written the batch that is with the disk, and not synced
    """

    def __init__(
        self, after: Later, salt: Callable[[], int], *args: Any, **named: Any
    ) -> None:
        self.after = after
        self.salt = salt
        self.written: Any = None
        # A write at the turn's end would be synced in no time; here a sync is an event of its own.
        super().__init__(*args, **{**named, "at_turn_end": None})
        self._jobs = self  # type: ignore[assignment]
        self._file = -1
        self._fd = -1

    def _new_salt(self, file: int) -> int:
        salt = self.salts[file] = self.salt()
        return salt

    def put(self, batch: Any) -> None:
        """A batch for the thread that is not there; None: the log is being closed."""
        if batch is None:
            if self.written is not None:
                with suppress(OSError):
                    self._files.sync_data(self._fd)
            return
        try:
            self.write(batch)
        except OSError as error:
            self.failed(batch, error)
            return
        self.written = batch
        self.after(lambda: self.synced(batch))

    def write(self, batch: Any) -> None:
        """To the disk, which may yet forget it."""
        if not batch.buffers:
            return
        if batch.file != self._file:
            head = encode_file_header(batch.file, batch.salt, batch.number)
            self._fd = self._files.create(self._directory / file_name(batch.file), head)
            self._file = batch.file
        self._files.write_at(self._fd, batch.offset, batch.buffers)

    def failed(self, batch: Any, error: OSError) -> None:
        """A full disk is waited for; anything else ends the node."""
        if is_full(error):
            self._post(lambda: self._is_full(error))
            self.after(lambda: None if self._closing.is_set() else self.put(batch))
        else:
            path = self._directory / file_name(batch.file)
            self._post(lambda: self._fail(path, error))

    def synced(self, batch: Any) -> None:
        """The sync has returned."""
        self.written = None
        if batch.buffers:
            try:
                self._files.sync_data(self._fd)
            except OSError as error:
                self.failed(batch, error)
                return
        self._post(lambda: self._finished(batch))


class SimulatedJanitor:
    """Does what `Janitor` does: one job after the other, each some time after it was asked for."""

    def __init__(
        self, after: Later, worked: Callable[[], None], post: Callable[[Any], None], path: Any
    ) -> None:
        """worked: called after each job."""
        self.worked = worked
        self.after = after
        self.post = post
        self.path = path
        self.closed = False
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any], None], Any]] = deque()

    def run(self, job: Callable[[], Any], done: Callable[[Any], None], full: Any) -> None:
        """See Janitor."""
        self.jobs.append((job, done, full))
        if len(self.jobs) == 1:
            self.after(self.work)

    def work(self) -> None:
        """The oldest job."""
        job, done, full = self.jobs[0]
        try:
            result = job()
            self.post(lambda: self.tell(done, result))
        except OSError as error:
            failure = error
            if not is_full(error):
                self.post(lambda: self.fail(failure))
                return
            self.post(lambda: self.tell(full, failure))
        except StorageError as error:
            self.post(lambda error=error: self.fail(error))  # type: ignore[misc]
            return
        self.worked()
        self.jobs.popleft()
        if self.jobs:
            self.after(self.work)

    def tell(self, done: Callable[[Any], None], result: Any) -> None:
        """On the loop, unless it was closed meanwhile."""
        if not self.closed:
            done(result)

    def fail(self, error: Exception) -> None:
        """The node ends."""
        if isinstance(error, OSError):
            raise WriteFailed(Path(error.filename or self.path), error) from error
        raise error

    def cut_short(self) -> None:
        """The power goes while the oldest job is at it."""
        if self.jobs:
            with suppress(OSError, WriteFailed):
                self.jobs[0][0]()

    def close(self) -> None:
        """Finish what was asked for; nobody is told any more."""
        self.closed = True
        while self.jobs:
            job, _, _ = self.jobs.popleft()
            with suppress(OSError):
                job()
