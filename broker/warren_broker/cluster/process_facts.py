"""What the operating system says of the node's process and its disk."""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path
from typing import NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Return this process's resident memory; 0 where the system does not report it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


_KINDS = {"RssAnon": "anonymous", "RssFile": "file", "RssShmem": "shared"}


def resident_kinds() -> dict[str, int]:
    """Return this process's resident bytes by what they are of; empty where that is not known."""
    found = {}
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name in _KINDS:
                    found[_KINDS[name]] = int(value.split()[0]) << 10
    except (OSError, IndexError, ValueError):
        return {}
    return found


def disk_free_bytes(data_dir: Path) -> int:
    """Return what is free on the disk of a folder, for a user; raises OSError."""
    status = os.statvfs(data_dir)
    return status.f_bavail * status.f_frsize


def cpu_seconds() -> dict[str, float]:
    """Return what this process has used of processors, in user code and in the system."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"user": used.ru_utime, "system": used.ru_stime}


def process_work() -> tuple[int, int]:
    """Return how often this process was switched, and how often it has collected garbage."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    collections = sum([one["collections"] for one in gc.get_stats()])
    return used.ru_nvcsw + used.ru_nivcsw, collections


def open_files() -> int:
    """Return how many files and sockets this process has open; 0 where the system does not say."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


class ProcessFacts(NamedTuple):
    """Of this process; disk_free 0: the system does not say it."""

    resident: int
    disk_free: int
    files: int
    files_max: int
    pid: int
    processors: int

    @classmethod
    def of(cls, data_dir: Path) -> ProcessFacts:
        """Ask the operating system."""
        try:
            free = disk_free_bytes(data_dir)
        except OSError:
            free = 0
        files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        known = resident_bytes(), free, open_files(), files_max
        return cls(*known, os.getpid(), os.cpu_count() or 1)
