"""Opening a data directory: lock, recovery, quarantine of damaged files; appends nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from warren_raft.storage import quarantine
from warren_raft.storage.errors import GroupAlone, LogDamaged, LogOfOtherVersion
from warren_raft.storage.files import Files
from warren_raft.storage.group_log import Memtable
from warren_raft.storage.identity import Directory, draw_disk, open_directory
from warren_raft.storage.log_files import LogFiles
from warren_raft.storage.recovery import MayHeal, Recovered, recover
from warren_raft.types import NodeId
from warren_raft.versions import OWN, Versions

log = logging.getLogger("warren.raft")


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """A locked directory with its recovered content; a `LogStore` appends to it."""

    files: Files
    directory: Directory
    memtable: Memtable
    recovered: Recovered
    log_files: LogFiles

    def close(self) -> None:
        """Unlock the directory without a write."""
        self.log_files.close()
        self.directory.close()


def open_log(
    files: Files,
    path: Path,
    cluster: str,
    node: str,
    memtable_bytes: int,
    draw: Callable[[], int] = draw_disk,
    may_heal: MayHeal | None = None,
    peers: Collection[NodeId] = (),
    clock_ms: Callable[[], int] = lambda: 0,
    versions: Versions = OWN,
) -> OpenedLog:
    """Lock the directory and read its log; raises StorageError.

    draw, versions  see open_directory
    may_heal  which groups other nodes have, so that damaged files go to quarantine; None, or
              without `peers` here or in the directory: damage is refused
    """
    directory = open_directory(files, path, cluster, node, draw, versions)
    try:
        quarantine.resume(files, directory, draw)
        others = bool(peers or directory.identity.peers)
        recovered, memtable = _recover(
            files, directory, memtable_bytes, draw, may_heal if others else None
        )
        quarantine.report(files, directory)
    except BaseException:
        directory.close()
        raise
    if recovered.cut is not None:
        log.warning(
            "%s: cut a torn end off: %s bytes from byte %s on, never acknowledged",
            recovered.cut[0],
            recovered.cut[2],
            recovered.cut[1],
        )
    log_files = LogFiles(files, directory, recovered, clock_ms)
    return OpenedLog(files, directory, memtable, recovered, log_files)


def _recover(
    files: Files,
    directory: Directory,
    memtable_bytes: int,
    draw: Callable[[], int],
    may_heal: MayHeal | None,
) -> tuple[Recovered, Memtable]:
    memtable = Memtable(memtable_bytes)
    outdated = directory.identity.outdated
    try:
        if outdated:
            raise LogDamaged(directory.path, 0, outdated)
        return recover(files, directory, memtable, may_heal), memtable
    except LogOfOtherVersion:
        raise
    except LogDamaged as damage:
        if may_heal is None or isinstance(damage, GroupAlone):
            raise
        place = quarantine.set_all_aside(files, directory, damage, draw)
        log.critical(
            "%s. Other nodes have the data: all of it is set aside in %s, and this node "
            "joins its groups again. Check the disk",
            damage.what,
            place,
        )
    memtable = Memtable(memtable_bytes)
    return recover(files, directory, memtable), memtable
