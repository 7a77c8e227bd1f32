"""What is made of certificates on disk is made again when the files change."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from warren_wire.tls.contexts import CertificatesUnusable, TlsFiles

log = logging.getLogger("warren.raft")
Made = TypeVar("Made")

LOOK_S = 1.0
"""Interval at which the files are looked at. They are read once two looks have found the same
change: certificate and key are two files, written one after the other."""


class WatchedFiles(Generic[Made]):
    """What is made of files, a context; when they change, `current` becomes a new one.

    current  for the next connection; those that exist keep theirs
    what     the subject of its log lines
    The files are looked at on a thread, because a disk may hang.
    Invariant: `current` was made from files that belong together
    """

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], Made], what: str) -> None:
        self._files = files
        self._make = make
        self._what = what
        self._used = _state(files)
        self._found = self._used
        self.current = make(files)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look at the files from now on."""
        self._thread = threading.Thread(target=self._watch, name="certificates", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look at them no more."""
        self._over.set()

    def look(self) -> None:
        """Read the files again if they have changed, and have stayed the same since last time."""
        found, before = _state(self._files), self._found
        self._found = found
        if found == self._used or found != before:
            return
        self._used = found
        try:
            made = self._make(self._files)
        except CertificatesUnusable as error:
            log.error(
                "%s: the certificates on disk have changed and cannot be used: %s; new connections "
                "still get the earlier ones",
                self._what,
                error,
            )
            return
        self.current = made
        log.info("%s: new certificates were read from %s", self._what, self._files.certfile)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()


def _state(files: TlsFiles) -> tuple[tuple[int, ...], ...]:
    """Return what tells a version of the files from any other."""
    found: list[tuple[int, ...]] = []
    for path in files.paths().values():
        try:
            seen = os.stat(path)
            found.append((seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns))
        except OSError as error:
            found.append((error.errno or 0,))
    return tuple(found)
