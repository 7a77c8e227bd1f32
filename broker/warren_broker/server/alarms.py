"""When publishers must wait: memory or disk of this node runs short."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from warren_broker.config import Alarms as AlarmSettings
from warren_raft.runtime.loop import Loop

log = logging.getLogger(__name__)
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """This process's resident memory; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


class Alarms:
    """Looks at memory and disk now and then; tells who listens when the answer changes.

    reasons  what is short now, sorted; empty: nothing
    """

    def __init__(self, loop: Loop, settings: AlarmSettings, data_dir: Path) -> None:
        self._loop = loop
        self._settings = settings
        self._data_dir = data_dir
        self._listeners: list[Callable[[tuple[str, ...]], None]] = []
        self.reasons: tuple[str, ...] = ()

    def start(self) -> None:
        """Look from now on."""
        self._look()

    def listen(self, listener: Callable[[tuple[str, ...]], None]) -> None:
        """Call with the reasons whenever they change."""
        self._listeners.append(listener)

    def _look(self) -> None:
        settings = self._settings
        reasons = []
        status = os.statvfs(self._data_dir)
        free = status.f_bavail * status.f_frsize
        if free < settings.disk_free_limit_bytes:
            reasons.append("disk")
        if resident_bytes() > settings.memory_high_watermark_bytes:
            reasons.append("memory")
        if tuple(reasons) != self.reasons:
            log.warning(
                "alarms: %s (free disk %d bytes, limit %d; memory limit %d)",
                ", ".join(reasons) or "cleared",
                free,
                settings.disk_free_limit_bytes,
                settings.memory_high_watermark_bytes,
            )
            self.reasons = tuple(reasons)
            for listener in self._listeners:
                listener(self.reasons)
        self._loop.call_later(settings.interval_ms, self._look)
