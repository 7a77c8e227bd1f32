"""Log and janitor without their threads: a sync, and a rewriting, take virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from warren_raft.storage.errors import WriteFailed
from warren_raft.storage.format import encode_file_header
from warren_raft.storage.wal import Wal, file_name


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

    after  (act): call it when the next sync is done, unless the process has died by then
    salt   the next one
    """

    def __init__(
        self,
        after: Callable[[Callable[[], None]], None],
        salt: Callable[[], int],
        *args: Any,
        **named: Any,
    ) -> None:
        self.after = after
        self.salt = salt
        # A write at the turn's end would be synced in no time; here a sync is an event of its own.
        super().__init__(*args, **{**named, "at_turn_end": None})
        self._jobs = self  # type: ignore[assignment]
        self._file = -1
        self._fd = -1

    def _new_salt(self, file: int) -> int:
        salt = self.salts[file] = self.salt()
        return salt

    def put(self, batch: Any) -> None:
        """A batch for the thread that is not there."""
        if batch is None:
            return
        if batch.buffers:
            if batch.file != self._file:
                self._file = batch.file
                self._fd = self._files.create(
                    self._directory / file_name(batch.file),
                    encode_file_header(batch.file, batch.salt, batch.number),
                )
            self._files.write_at(self._fd, batch.offset, batch.buffers)
        self.after(lambda: self.synced(batch))

    def synced(self, batch: Any) -> None:
        """The sync has returned."""
        if batch.buffers:
            self._files.sync_data(self._fd)
        self._post(lambda: self._finished(batch))


class SimulatedJanitor:
    """Does what `Janitor` does: one job after the other, each some time after it was asked for."""

    def __init__(
        self,
        after: Callable[[Callable[[], None]], None],
        worked: Callable[[], None],
        post: Callable[[Any], None],
        path: Any,
    ) -> None:
        """worked: called after each job."""
        self.worked = worked
        self.after = after
        self.post = post
        self.jobs: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    def run(self, job: Callable[[], Any], done: Callable[[Any], None], full: Any) -> None:
        """See Janitor."""
        self.jobs.append((job, done))
        if len(self.jobs) == 1:
            self.after(self.work)

    def work(self) -> None:
        """The oldest job."""
        job, done = self.jobs[0]
        result = job()
        self.worked()
        self.jobs.popleft()
        self.post(lambda: done(result))
        if self.jobs:
            self.after(self.work)

    def cut_short(self) -> None:
        """The power goes while the oldest job is at it."""
        if self.jobs:
            with suppress(OSError, WriteFailed):
                self.jobs[0][0]()

    def close(self) -> None:
        """Nothing."""
