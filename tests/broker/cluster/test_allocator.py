"""The C library's allocator: one arena for all threads, and its figures."""

from __future__ import annotations

import subprocess
import sys
import threading

from tests.patience import PATIENCE_S
from warren_broker.cluster import allocator

THREADS = """
import ctypes, sys, tempfile, threading
from warren_broker.cluster import allocator
if sys.argv[1] == "one":
    assert allocator.use_one_arena()
kept = []
for _ in range(4):
    thread = threading.Thread(target=lambda: kept.extend([bytes(600) for _ in range(1000)]))
    thread.start()
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(file.read().count(b"<heap nr="))
"""

HOLES = """
from pathlib import Path
from warren_broker.cluster import allocator
from warren_broker.cluster.process_facts import resident_bytes
kept = [bytes(4000) for _ in range(20_000)]  # 80 MB, and what is kept of it is everywhere
full = resident_bytes()
kept = kept[::64]
freed = resident_bytes()
allocator.give_back()
print(full - freed, full - resident_bytes())
"""


def arenas(which: str) -> int:
    """The arenas of a process after four threads have allocated, one after the other."""
    command = [sys.executable, "-c", THREADS, which]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_threads_share_one_arena() -> None:
    assert arenas("one") == 1
    assert arenas("many") > 1, "this test shows nothing"


def test_what_is_freed_is_counted() -> None:
    kept = [bytes(1000) for _ in range(20_000)]
    before = allocator.allocated()
    del kept[::2]
    after = allocator.allocated()
    assert before is not None and after is not None
    assert before.used - after.used > 9_000_000
    assert after.free > before.free


def test_free_pages_in_the_middle_of_the_heap_are_given_back() -> None:
    command = [sys.executable, "-c", HOLES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    by_itself, given_back = map(int, done.stdout.split())
    assert by_itself < 20_000_000, "this test shows nothing"
    assert given_back > 60_000_000


def test_they_are_given_back_again_and_again() -> None:
    calls, enough = [], threading.Event()

    def call() -> None:
        calls.append(threading.current_thread())
        if len(calls) == 3:
            enough.set()

    over = allocator.give_back_regularly(0.001, call)
    assert enough.wait(PATIENCE_S)
    over.set()
    calls[0].join(PATIENCE_S)
    assert not calls[0].is_alive() and threading.main_thread() not in calls
