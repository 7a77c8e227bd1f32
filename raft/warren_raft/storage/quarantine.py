"""Quarantine: files found damaged at a start are set aside, not removed; other members repair them.

`damaged/NNNN/` (four digits, ascending) holds what one start set aside, under the original names:

| name | what |
| --- | --- |
| `reason` | file, offset and reason of the damage, as text |
| `moving` | the same while the whole log is being moved; a start that finds it continues |
| `wal/…`, `segments/…`, `snapshots/…`, `groups.manifest`, `synced` | the files |

A snapshot's damage concerns one group only. Damage to the log, the manifest or an index concerns an
unknown set of groups: everything is set aside, and the directory gets another disk id, because
nothing that this node acknowledged is on it. Order: 1. `moving` is written  2. the new disk id is
in `node.json`  3. the files are moved  4. `moving` is renamed to `reason`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from warren_raft.storage import manifest
from warren_raft.storage.errors import LogDamaged
from warren_raft.storage.files import Files
from warren_raft.storage.identity import SYNCED, Directory

log = logging.getLogger("warren.raft")

DAMAGED = "damaged"
MOVING = "moving"
REASON_FILE = "reason"


def set_aside(files: Files, directory: Directory, paths: list[Path], reason: str) -> Path:
    """Move single files to a new folder under `damaged/`; returns the folder."""
    place = _new_place(files, directory)
    files.write_whole(place / REASON_FILE, reason.encode() + b"\n")
    for path in paths:
        if files.exists(path):
            _move(files, directory, path, place)
    return place


def set_all_aside(
    files: Files, directory: Directory, damage: LogDamaged, draw: Callable[[], int]
) -> Path:
    """Move the whole log to `damaged/`: the directory is empty then, with a new disk id."""
    place = _new_place(files, directory)
    files.write_whole(place / MOVING, damage.what.encode() + b"\n")
    _move_all(files, directory, place, draw)
    return place


def resume(files: Files, directory: Directory, draw: Callable[[], int]) -> None:
    """Continue a move that a crash interrupted; called before anything of the log is read."""
    for place in places(files, directory):
        if files.exists(place / MOVING):
            _move_all(files, directory, place, draw)


def places(files: Files, directory: Directory) -> list[Path]:
    """Return the folders of everything that was set aside here, oldest first."""
    root = directory.path / DAMAGED
    if not files.exists(root):
        return []
    return [root / name for name in files.names(root) if name.isdigit()]


def report(files: Files, directory: Directory) -> None:
    """Log what is set aside: it takes space, and the operator should check the disk."""
    for place in places(files, directory):
        if not files.exists(place / REASON_FILE):
            continue  # a crash before anything was moved
        kept = sum(
            len(files.names(part)) for part in _parts(directory, place) if files.exists(part)
        )
        kept += sum(files.exists(place / name) for name in (manifest.NAME, SYNCED))
        reason = files.read(place / REASON_FILE).decode(errors="replace").strip()
        log.warning(
            "%s holds %s damaged files that were set aside (%s); remove it if they are not needed",
            place,
            kept,
            reason,
        )


def _new_place(files: Files, directory: Directory) -> Path:
    root = directory.path / DAMAGED
    files.make_directory(root)
    numbers = [int(name) for name in files.names(root) if name.isdigit()]
    place = root / f"{max(numbers, default=0) + 1:04d}"
    files.make_directory(place)
    return place


def _parts(directory: Directory, place: Path) -> list[Path]:
    return [place / part.name for part in (directory.wal, directory.segments, directory.snapshots)]


def _move_all(files: Files, directory: Directory, place: Path, draw: Callable[[], int]) -> None:
    # 1. Some files are moved.  2. The node crashes.  3. The others are taken for a whole log: what
    # this node has acknowledged is lost, and it votes all the same. So it gets a new disk id first.
    directory.change(disk=f"{draw():016x}", founders={}, logged=False, outdated="")
    for part in (directory.wal, directory.segments, directory.snapshots):
        for name in files.names(part):
            _move(files, directory, part / name, place)
    for name in (manifest.NAME, SYNCED):
        if files.exists(directory.path / name):
            _move(files, directory, directory.path / name, place)
    files.rename(place / MOVING, place / REASON_FILE)


def _move(files: Files, directory: Directory, path: Path, place: Path) -> None:
    into = place if path.parent == directory.path else place / path.parent.name
    files.make_directory(into)
    files.move(path, into / path.name)
