"""WAL and background writer without their threads: a sync, and a rewriting, take virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warren_raft.errors import StorageError
from warren_raft.storage.errors import WriteFailed
from warren_raft.storage.files import is_full
from warren_raft.storage.wal import Wal

if TYPE_CHECKING:
    from sim.whole.process import Process

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


REPLACED_MS = 200
"""A write that takes longer does not keep the loop, see `Loop.wait_for`."""


class SimulatedWal(Wal):
    """The log itself, its writer too; only its thread is not there.

    What the thread does with a batch is done some time after it was given it, or at once where the
    log writes without the thread, and the process stands still for so long instead; when the power
    fails meanwhile, a part of it is done.
    salt     the next one
    job      the batch that the thread has; since: when it was given it
    """

    def __init__(
        self, process: Process, files: Any, directory: Path, *args: Any, **named: Any
    ) -> None:
        self.process = process
        self.job: Any = None
        self.since = 0
        if not process.world.profile.write_here:
            named["at_turn_end"] = None
        super().__init__(files, directory, *args, **named)
        self._jobs = self  # type: ignore[assignment]

    def _new_salt(self, file: int) -> int:
        salt = self.salts[file] = self.process.machine.rng.randrange(1 << 32)
        return salt

    def put(self, batch: Any) -> None:
        """A batch for the thread that is not there; None: the log is being closed."""
        if batch is None:
            self.cut_short()
            return
        self.job = batch
        self.since = self.process.world.agenda.now_ms
        self.process.after_sync(self.work)

    def work(self) -> None:
        """What the thread does with one batch."""
        batch = self.job
        if batch is None:
            return  # the log was closed meanwhile
        try:
            wrote = self._wrote(batch)
        except OSError as error:
            failure = error
            self._post(lambda: self._fail(self._writer.path, failure))
            return
        if not wrote:
            self.process.after_sync(self.work)
            return
        self.job = None
        self._post(lambda: self._finished(batch))

    def _write_here(self) -> Callable[[], None]:
        if self._here is None:
            return super()._write_here()
        takes_ms = self.process.machine.sync_ms()
        self.process.stands_still(min(takes_ms, REPLACED_MS))
        if takes_ms <= REPLACED_MS:
            return super()._write_here()
        # Another thread continues with the loop: the one that writes is as good as the log's own.
        batch, self._here = self._here, None
        self.put(batch)
        return lambda: None

    def cut_short(self) -> None:
        """Forget it: no caller waits for it any more."""
        job, self.job = self.job, None
        if job is not None:
            with suppress(OSError):
                self._writer.write(job)


class SimulatedBackgroundWriter:
    """Does what `BackgroundWriter` does: one job at a time, each some time after its request."""

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
        """See BackgroundWriter."""
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
        """Cut the power during the oldest job."""
        if self.jobs:
            with suppress(OSError, WriteFailed):
                self.jobs[0][0]()

    def close(self) -> None:
        """Finish what was asked for; no callback is called any more."""
        self.closed = True
        while self.jobs:
            job, _, _ = self.jobs.popleft()
            with suppress(OSError):
                job()
