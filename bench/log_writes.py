"""What a node's log pays for its pages: CPU of writes with their sync, by where the bytes go."""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bench.generator import PLACE
from bench.report import show

MIB: Final = 1 << 20
FILE_MIB: Final = 64
"""As a file of the log."""
CHUNK_BYTES: Final = MIB
DIRECT: Final = getattr(os, "O_DIRECT", 0)


def log_writes(rounds: int) -> list[dict[str, Any]]:
    """Write a file of 64 MiB in every way, in turn; show the least and the most of each."""
    PLACE.mkdir(parents=True, exist_ok=True)
    spent: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(dir=PLACE) as place:
        for _ in range(rounds):
            for name, write in WAYS:
                path = Path(place) / "file"
                spent.setdefault(name, []).append(write(path))
    results = [{"way": name, "us_per_mib": each} for name, each in spent.items()]
    show(
        f"writes of {CHUNK_BYTES // MIB} MiB with their sync, {FILE_MIB} MiB of them",
        [
            {
                "file": name,
                "CPU, µs per MiB, least": f"{min(each):,.0f}",
                "most": f"{max(each):,.0f}",
            }
            for name, each in spent.items()
        ],
        [f"{rounds} rounds; each file but the new ones has the space of the one before it"],
    )
    return results


def _written(path: Path, flags: int = 0, before: Callable[[int], None] | None = None) -> float:
    """Write the file from its beginning; return the CPU in µs per MiB, the system's included."""
    buffer = mmap.mmap(-1, CHUNK_BYTES)  # of whole pages, as O_DIRECT needs it
    buffer.write(bytes(range(256)) * (CHUNK_BYTES // 256))
    fd = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
    try:
        if before is not None:
            before(fd)
        began = time.process_time()
        for offset in range(0, FILE_MIB * MIB, CHUNK_BYTES):
            written = os.pwritev(fd, [buffer], offset)
            assert written == CHUNK_BYTES, written
            os.fdatasync(fd)
        return (time.process_time() - began) * 1e6 / FILE_MIB
    finally:
        os.close(fd)
        buffer.close()


def _new(path: Path, flags: int = 0) -> float:
    path.unlink(missing_ok=True)
    return _written(path, flags)


def _dropped(fd: int) -> None:
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


WAYS: Final[tuple[tuple[str, Callable[[Path], float]], ...]] = (
    ("new", _new),
    ("written over", _written),
    ("written over, not in memory any more", lambda path: _written(path, before=_dropped)),
    ("written over past the page cache", lambda path: _written(path, DIRECT, _dropped)),
    ("new, past the page cache", lambda path: _new(path, DIRECT)),
)
