"""The thread that writes segments, manifest and snapshots beside the appends to the log."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from warren_raft.errors import StorageError
from warren_raft.storage.errors import WriteFailed
from warren_raft.storage.files import is_full

T = TypeVar("T")
Post = Callable[[Callable[[], None]], None]
Full = Callable[[OSError], None]
Work = tuple[Callable[[], Any], Callable[..., None], Full]


class BackgroundWriter:
    """A thread that runs one job at a time and reports its outcome on the owner's thread.

    Nothing depends on what a job writes until it is reported as done, so a full disk only delays
    it. After any other failure the disk's content is unknown, and the node ends.
    """

    def __init__(self, post: Post, path: Path) -> None:
        self._post = post
        self._path = path
        self._closed = False
        self._jobs: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="background-writer", daemon=True)
        self._thread.start()

    def run(self, job: Callable[[], T], done: Callable[[T], None], full: Full) -> None:
        """Run `job` on the thread, then call done(result), or full(error) if there was no space."""
        self._jobs.put((job, done, full))

    def close(self) -> None:
        """Finish the queued jobs; their outcomes are not reported any more."""
        self._closed = True
        self._jobs.put(None)
        self._thread.join()

    def _tell(self, done: Callable[[T], None], result: T) -> None:
        if not self._closed:
            done(result)

    def _fail(self, error: OSError) -> None:
        raise WriteFailed(Path(error.filename or self._path), error) from error

    def _died(self) -> None:
        raise AssertionError(
            "the background writer's thread ended; its traceback was printed before this"
        )

    def _raise(self, error: Exception) -> None:
        raise error

    def _work(self) -> None:
        ended = False
        try:
            while (work := self._jobs.get()) is not None:
                job, done, full = work
                try:
                    result = job()
                except OSError as error:
                    if is_full(error):
                        self._post(partial(self._tell, full, error))
                        continue
                    ended = True
                    self._post(partial(self._fail, error))
                    return
                except StorageError as error:
                    ended = True
                    self._post(partial(self._raise, error))
                    return
                self._post(partial(self._tell, done, result))
            ended = True
        finally:
            if not ended:
                self._post(self._died)
