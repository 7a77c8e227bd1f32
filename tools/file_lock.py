"""A lock between processes that use one place; it ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools import console

_mine: set[Path] = set()
"""Locks that this process holds: it may ask for one again."""


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold the lock of a file; say for which process it waits, if it does.

    The file has the number of the process that holds it. It may be removed, as `build.py clean`
    does: the next one that gets the lock of a file without that name takes the lock of a new one.
    The lock is the kernel's (flock): it is free when the process has ended, however it ended.

    what  the work that is done under it, for the line that says so
    """
    if path in _mine:
        yield
        return
    number = _take(path, what)
    _mine.add(path)
    try:
        yield
    finally:
        _mine.discard(path)
        os.close(number)


def _take(path: Path, what: str) -> int:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _wait(number, path, what)
            if _is(number, path):
                os.ftruncate(number, 0)
                os.pwrite(number, str(os.getpid()).encode(), 0)
                return number
        except BaseException:
            os.close(number)
            raise
        os.close(number)


def _wait(number: int, path: Path, what: str) -> None:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(number, 20, 0).decode(errors="replace") or "of unknown number"
        console.say(f" · waiting for process {holder}, which is {what} ({path})")
        fcntl.flock(number, fcntl.LOCK_EX)


def _is(number: int, path: Path) -> bool:
    """Return whether the open file still has that name."""
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except FileNotFoundError:
        return False
