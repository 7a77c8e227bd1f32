"""The C library's allocator, where it is glibc's: its arenas, its figures, what it keeps free."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple

M_ARENA_MAX: Final = -8
GIVE_BACK_S: Final = 60.0
"""Time between two returns of free pages to the system.

At 600 s the heap was larger after each of them, by what had been freed in small pieces since.
"""
_FIELDS: Final = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


class Allocated(NamedTuple):
    """Bytes: allocated from the heap, free in it, in blocks of their own (`mmap`).

    Objects of up to 512 bytes are in none of them, but in Python's arenas. Free bytes are resident
    unless they were given back since they were last used.
    """

    used: int
    free: int
    large: int


def use_one_arena() -> bool:
    """Let all threads allocate from one arena; return whether the library does so.

    1. The loop's thread allocates the log's entries.  2. A write hangs, and another thread runs the
    loop from then on (`Loop`).  3. With an arena for each thread it allocates from one of its own,
    and what is freed in the first one is of no use to it.
    A lock is no loss: all but a few calls are made with the interpreter's lock held.
    """
    mallopt = _function("mallopt", ctypes.c_int)
    return mallopt is not None and bool(mallopt(M_ARENA_MAX, 1))


def allocated() -> Allocated | None:
    """Return the allocator's figures; None: the C library has none."""
    mallinfo2 = _function("mallinfo2", _Mallinfo2)
    if mallinfo2 is None:
        return None
    info = mallinfo2()
    return Allocated(info.uordblks, info.fordblks, info.hblkhd)


def give_back() -> None:
    """Return the pages that are free to the system, wherever in the heap they are."""
    malloc_trim = _function("malloc_trim", ctypes.c_int)
    if malloc_trim is not None:
        malloc_trim(ctypes.c_size_t(0))


def give_back_regularly(
    every_s: float = GIVE_BACK_S, call: Callable[[], None] = give_back
) -> threading.Event:
    """Start a thread that gives free pages back; return what ends it.

    The library itself returns the heap's end only. 1. A burst fills the heap.  2. It is freed, but
    for a few entries at the end.  3. Without this the process keeps its largest size for good.
    Meanwhile the allocator is locked: 2 to 7 ms for 25 to 35 MiB in 6,000 to 8,000 pieces, 0.5 ms
    where there is nothing to return. Not on the loop's thread, which needs the allocator for what
    has more than 512 bytes only.
    """
    over = threading.Event()

    def run() -> None:
        while not over.wait(every_s):
            call()

    threading.Thread(target=run, name="allocator", daemon=True).start()
    return over


def _function(name: str, result: Any) -> Any:
    """Return a function of the C library; None: it is another library, without that one."""
    try:
        found = ctypes.CDLL(None)[name]
    except (OSError, AttributeError):
        return None
    found.restype = result
    return found
