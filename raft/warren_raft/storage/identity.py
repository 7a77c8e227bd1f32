"""Whose data directory this is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from warren_raft.storage.errors import DirectoryRefused
from warren_raft.storage.files import Files

FORMAT = 1
IDENTITY = "node.json"
LOCK = "lock"
WAL = "wal"
SEGMENTS = "segments"
SNAPSHOTS = "snapshots"


class Identity(msgspec.Struct, frozen=True):
    """What `node.json` says."""

    format: int
    cluster: str
    node: str


class Directory:
    """A data directory, locked for as long as this object is open."""

    def __init__(self, path: Path, wal: Path, lock: int, files: Files) -> None:
        self.path = path
        self.wal = wal
        self.segments = path / SEGMENTS
        self.snapshots = path / SNAPSHOTS
        self._lock = lock
        self._files = files

    def close(self) -> None:
        """Let another process have it."""
        self._files.close(self._lock)


def open_directory(files: Files, path: Path, cluster: str, node: str) -> Directory:
    """Lock a node's directory; a new one is made for it.

    raises  DirectoryRefused, having changed nothing, when it is somebody else's or in use
    """
    fresh = not files.exists(path / IDENTITY)
    if fresh:
        if files.exists(path / WAL) and files.names(path / WAL):
            raise DirectoryRefused(
                path,
                f"it holds a log but no {IDENTITY}, so it is not known whose it is",
                f"restore {IDENTITY} from a copy, or give this node an empty directory",
            )
    else:
        _refuse_stranger(files, path, cluster, node)
    files.make_directory(path)
    lock = files.lock(path / LOCK)
    if lock is None:
        raise DirectoryRefused(
            path,
            "another process uses it",
            "stop that process (a node of the same name?), or give this node its own directory",
        )
    try:
        if fresh:
            # Again under the lock: 1. Two first starts see no identity. 2. One takes the lock,
            # writes its name, ends. 3. The other takes the lock: it must not rename the owner.
            if files.exists(path / IDENTITY):
                _refuse_stranger(files, path, cluster, node)
            else:
                data = msgspec.json.encode(Identity(FORMAT, cluster, node))
                files.write_whole(path / IDENTITY, data + b"\n")
        for name in (WAL, SEGMENTS, SNAPSHOTS):
            files.make_directory(path / name)
    except BaseException:
        files.close(lock)
        raise
    return Directory(path, path / WAL, lock, files)


def _refuse_stranger(files: Files, path: Path, cluster: str, node: str) -> None:
    try:
        found = msgspec.json.decode(files.read(path / IDENTITY), type=Identity)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DirectoryRefused(
            path, f"{IDENTITY} cannot be read ({error})", f"restore {IDENTITY} from a copy"
        ) from None
    if found.format > FORMAT:
        raise DirectoryRefused(
            path,
            f"it was written in format {found.format}, this program knows formats up to {FORMAT}",
            "start it with the version that wrote it, or a newer one",
        )
    if found.cluster != cluster:
        raise DirectoryRefused(
            path,
            f"it belongs to cluster {found.cluster!r}, this node is of cluster {cluster!r}",
            f"give this node another directory, or set its cluster to {found.cluster!r}",
        )
    if found.node != node:
        raise DirectoryRefused(
            path,
            f"it belongs to node {found.node!r}, this node is {node!r}",
            f"give this node another directory, or name it {found.node!r}",
        )
