"""Resource alarms of this node: low memory or disk blocks publishers."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warren_broker.cluster import allocator
from warren_broker.cluster.process_facts import disk_free_bytes, resident_bytes
from warren_broker.cluster.resource_alarms import DISK, ResourceAlarms
from warren_broker.config import AlarmSettings
from warren_raft.runtime.loop import Loop

log = logging.getLogger(__name__)


def release_memory() -> None:
    """Return memory to the system: run the garbage collector and trim the allocator."""
    gc.collect()
    allocator.give_back()


@dataclass(eq=False, repr=False)
class Alarms:
    """The alarms: memory and disk are checked periodically, a write without space at once.

    An alarm of one node blocks publishers on every node, see `cluster.resource_alarms`.

    reclaim: releases what the log holds and nothing needs.
    """

    loop: Loop
    settings: AlarmSettings
    data_dir: Path
    shortage: ResourceAlarms
    reclaim: Callable[[], None]
    _full: bool = False

    def start(self) -> None:
        """Start the periodic check."""
        self._look()
        self.loop.call_later(self.settings.interval_ms, self._again)

    def disk_full(self, full: bool) -> None:
        """Set the disk alarm: a write of the log found no space; False: it succeeded after all."""
        self._full = full
        self._look()
        self.shortage.disk_is_full(full)

    def _again(self) -> None:
        self._look()
        self.loop.call_later(self.settings.interval_ms, self._again)

    def _look(self) -> None:
        settings = self.settings
        reasons = []
        free = disk_free_bytes(self.data_dir)
        if self._full or free < settings.disk_free_limit_bytes:
            reasons.append(DISK)
        if resident_bytes() > settings.memory_high_watermark_bytes:
            reasons.append("memory")
        if tuple(reasons) != self.shortage.own:
            log.warning(
                "alarms: %s (free disk %d bytes, limit %d; memory limit %d)",
                ", ".join(reasons) or "cleared",
                free,
                settings.disk_free_limit_bytes,
                settings.memory_high_watermark_bytes,
            )
            self.shortage.is_short(tuple(reasons))
            if "memory" in reasons:
                release_memory()
        if DISK in reasons:
            self.reclaim()
