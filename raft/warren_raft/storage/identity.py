"""The identity of a data directory: its node, cluster and disk id.

`node.json` is a JSON object, replaced as a whole by a rename:

| field | what |
| --- | --- |
| format | 1 |
| cluster, node | names; another one's directory is refused |
| disk | 64 random bits, drawn when the directory was made, 16 hexadecimal digits |
| formed | the cluster is known to exist: an entry of group 0 was committed |
| cluster_id | of group 0's first entry, which distinguishes clusters of one name; "": unknown |
| founders | name to disk of the founders, if this node is one of them; empty: it is not |
| peers | name to [host, port] of each peer's last connection |
| logged | there is a log, with the files `synced` that name its newest file |
| outdated | why this directory is known to be an older copy; "": it is not |
| vouched | name to [disk, write, boot id]: each peer's position (`runtime/peer_write_marks.py`) |
| version | the newest version of what the directory may hold (`versions`); 0: nothing |
| checksum | crc32 of the object as it is written with an empty checksum, 8 hexadecimal digits |

Without a checksum one damaged digit of `disk` is another disk: the node would register as one that
lost its data, and groups that only it holds would start again, empty.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from warren_raft.storage.errors import DirectoryRefused
from warren_raft.storage.files import Files
from warren_raft.storage.manifest import NAME as MANIFEST
from warren_raft.types import NodeId
from warren_raft.versions import OWN, Versions, remedy
from warren_wire.checksum import crc32
from warren_wire.undecodable import UNDECODABLE

FORMAT = 1
DISK_DIGITS = 16
IDENTITY = "node.json"
LOCK = "lock"
WAL = "wal"
SEGMENTS = "segments"
SNAPSHOTS = "snapshots"
PARTS = (WAL, SEGMENTS, SNAPSHOTS)
SYNCED = "synced"
"""In the directory, and in its `wal`: the files that name the newest file of the log."""


class Identity(msgspec.Struct, frozen=True):
    """The content of `node.json`; see the module."""

    format: int
    cluster: str
    node: str
    disk: str
    formed: bool = False
    cluster_id: str = ""
    founders: dict[NodeId, str] = {}
    peers: dict[NodeId, tuple[str, int]] = {}
    logged: bool = False
    outdated: str = ""
    vouched: dict[NodeId, tuple[str, int, int]] = {}
    version: int = 0
    checksum: str = ""

    def sealed(self) -> Identity:
        """Return the same with its checksum."""
        return msgspec.structs.replace(self, checksum=self.reckoned())

    def reckoned(self) -> str:
        """Return the checksum that it should have."""
        return f"{crc32(msgspec.structs.replace(self, checksum='').encoded()):08x}"

    def encoded(self) -> bytes:
        """Encode it as the file."""
        return msgspec.json.encode(self)


def draw_disk() -> int:
    """Draw a directory id: 64 random bits."""
    return int.from_bytes(os.urandom(8), "little")


class Directory:
    """A data directory, locked for as long as this object is open."""

    def __init__(self, path: Path, lock: int, files: Files, identity: Identity) -> None:
        self.path = path
        self.wal = path / WAL
        self.segments = path / SEGMENTS
        self.snapshots = path / SNAPSHOTS
        self.identity = identity
        self._lock = lock
        self._files = files
        self._changing = threading.Lock()

    def change(self, **fields: Any) -> None:
        """Durably replace fields of the identity; raises OSError, having changed nothing."""
        with self._changing:  # the log's thread records that there is a log
            identity = msgspec.structs.replace(self.identity, **fields).sealed()
            if identity != self.identity:
                _write(self._files, self.path, identity)
                self.identity = identity

    def close(self) -> None:
        """Unlock the directory."""
        self._files.close(self._lock)


def _write(files: Files, path: Path, identity: Identity) -> None:
    files.write_whole(path / IDENTITY, identity.encoded() + b"\n")


def open_directory(
    files: Files,
    path: Path,
    cluster: str,
    node: str,
    draw: Callable[[], int] = draw_disk,
    versions: Versions = OWN,
) -> Directory:
    """Lock a node's directory, which is created if it does not exist.

    draw      draws the disk id of a new directory
    versions  that the program reads and writes
    raises    DirectoryRefused, having changed nothing, when it belongs to another node or is in use
    """
    fresh = examine_directory(files, path, cluster, node, versions)
    try:
        files.make_directory(path)
        lock = files.lock(path / LOCK)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES):
            raise
        raise DirectoryRefused(
            path,
            f"it cannot be written: {error.strerror}",
            "have its file system mounted for writing, and the directory writable for the user of "
            "this process",
        ) from error
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
            fresh = not files.exists(path / IDENTITY)
        if fresh:
            found = _new(cluster, node, draw)
            _write(files, path, found)
        else:
            found = _known(files, path, cluster, node, versions)
        for name in PARTS:
            files.make_directory(path / name)
    except BaseException:
        files.close(lock)
        raise
    return Directory(path, lock, files, found)


def examine_directory(
    files: Files, path: Path, cluster: str, node: str, versions: Versions = OWN
) -> bool:
    """Return whether a node's first start may begin in it; False: the node has started there.

    raises  DirectoryRefused when it belongs to another node, or its owner is not known
    """
    fresh = not files.exists(path / IDENTITY)
    if fresh:
        _refuse_what_is_not_empty(files, path)
    else:
        _known(files, path, cluster, node, versions)
    return fresh


def _refuse_what_is_not_empty(files: Files, path: Path) -> None:
    """Refuse a log without `node.json`: a new identity would hide that data is missing."""
    held = [name for name in PARTS if files.exists(path / name) and files.names(path / name)]
    held += [name for name in (SYNCED, MANIFEST) if files.exists(path / name)]
    if held:
        raise DirectoryRefused(
            path,
            f"it holds a log but no {IDENTITY}, so its node is not known "
            f"(found: {', '.join(sorted(held))})",
            f"restore {IDENTITY} from a copy, or give this node an empty directory",
        )


def _new(cluster: str, node: str, draw: Callable[[], int]) -> Identity:
    return Identity(FORMAT, cluster, node, f"{draw():0{DISK_DIGITS}x}").sealed()


def _known(files: Files, path: Path, cluster: str, node: str, versions: Versions) -> Identity:
    data = files.read(path / IDENTITY)
    try:
        found = msgspec.json.decode(data, type=Identity)
    except UNDECODABLE as error:
        raise DirectoryRefused(
            path, f"{IDENTITY} cannot be read ({error})", f"restore {IDENTITY} from a copy"
        ) from None
    if found.format != FORMAT:
        raise DirectoryRefused(
            path,
            f"it has format {found.format}, and this version reads format {FORMAT} alone: a later "
            "version wrote it, or one from before the release 0.1.0",
            "start it with the version that wrote it, or give this node an empty directory",
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
    if found.version and found.version not in versions:
        raise DirectoryRefused(
            path,
            f"it may hold what version {found.version} wrote, and this program has {versions}",
            remedy(versions, found.version),
        )
    damaged = _damage(found, data)
    if damaged:
        raise DirectoryRefused(
            path, f"{IDENTITY} is damaged: {damaged}", f"restore {IDENTITY} from a copy"
        )
    return found


def _damage(found: Identity, data: bytes) -> str:
    """Return the damage found in it; "": none."""
    if data.rstrip() != found.encoded():
        return "it differs from its encoding"  # else a field with a damaged name would be ignored
    if found.checksum != found.reckoned():
        return "its checksum is wrong"
    for disk in (found.disk, *found.founders.values()):
        if not re.fullmatch(f"[0-9a-f]{{{DISK_DIGITS}}}", disk):
            return f"{disk!r} is not a disk id"
    return ""
