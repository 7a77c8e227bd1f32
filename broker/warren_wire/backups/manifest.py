"""What a backup consists of.

A directory holds any number of backups of one cluster, which share files:

| name | content |
| --- | --- |
| `backups/ID.json` | the manifest of a backup: `BackupManifest`, JSON |
| `backups/ID.partial` | the same of one that was cut, or is being made |
| `data/HH/SHA256` | a piece of a group's snapshot, or some entries of its log (`entries`) |

A piece is named by the SHA-256 of its content, and HH are the first two digits of it. The pieces
of a snapshot, one after the other, are the snapshot's file as a node has it.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from warren_wire.backups.store import BackupStore
from warren_wire.undecodable import UNDECODABLE

FORMAT: Final = 1
FOLDER: Final = "backups"
COMPLETE: Final = ".json"
PARTIAL: Final = ".partial"


class DataFile(msgspec.Struct, frozen=True):
    """A piece of a snapshot."""

    sha256: str
    bytes: int

    @property
    def name(self) -> str:
        """Its name in the backup's directory."""
        return f"data/{self.sha256[:2]}/{self.sha256}"


class EntriesFile(DataFile, frozen=True):
    """Entries of a log: index of the first and of the last one, and their number."""

    first: int
    last: int
    count: int


class GroupCopy(msgspec.Struct, frozen=True):
    """A group as of one entry of its log.

    vhost, name  of the queue; "" of the definitions, which are group 0
    index, term  the last entry that is in the snapshot, or, as long as there is no snapshot, up to
                 which the entries have been copied
    members      nodes of the group
    entries      files that together hold each entry that the snapshot refers to, and others
    """

    group: int
    vhost: str
    name: str
    index: int
    term: int
    time_ms: int
    members: tuple[str, ...]
    snapshot: tuple[DataFile, ...]
    entries: tuple[EntriesFile, ...]

    @property
    def whole(self) -> bool:
        """Whether it was copied to its end."""
        return bool(self.snapshot)

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All its files."""
        return (*self.snapshot, *self.entries)

    @property
    def bytes(self) -> int:
        """The bytes of its files."""
        return sum(file.bytes for file in self.files)


class BackupManifest(msgspec.Struct, frozen=True):
    """A backup; see the module.

    id               of the time at which it began
    created          that time, as ISO 8601 has it, UTC
    warren           version of the program that made it
    cluster, cluster_id, cluster_version  of the cluster
    groups           the definitions first, then queues
    missing          [vhost, name] of queues that are in the definitions, and were not to be reached
    checksum         SHA-256 of the manifest as it is written with an empty checksum
    """

    format: int
    id: str
    created: str
    warren: str
    cluster: str
    cluster_id: str
    cluster_version: int
    groups: tuple[GroupCopy, ...]
    missing: tuple[tuple[str, str], ...] = ()
    checksum: str = ""

    def file(self, suffix: str = COMPLETE) -> str:
        """Return the name of its file."""
        return f"{FOLDER}/{self.id}{suffix}"

    @property
    def files(self) -> dict[str, DataFile]:
        """All files that it names, each once."""
        return {file.name: file for copy in self.groups for file in copy.files}


class BackupDamaged(Exception):
    """A file of a backup is not what it was.

    name    of the file
    reason  what is wrong with it
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason


def _plain(manifest: BackupManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def _reckoned(manifest: BackupManifest) -> str:
    empty = msgspec.structs.replace(manifest, checksum="")
    return hashlib.sha256(_plain(empty)).hexdigest()


def encode(manifest: BackupManifest) -> bytes:
    """Return the manifest's file."""
    return _plain(msgspec.structs.replace(manifest, checksum=_reckoned(manifest)))


def decode(name: str, data: bytes) -> BackupManifest:
    """Invert `encode`; raises BackupDamaged."""
    try:
        format_ = msgspec.json.decode(data, type=_Format).format
        if format_ != FORMAT:
            raise BackupDamaged(name, f"format {format_}; this version reads {FORMAT}")
        manifest = msgspec.json.decode(data, type=BackupManifest)
    except UNDECODABLE as error:
        raise BackupDamaged(name, f"no manifest: {error}") from error
    # What differs from its encoding may be a field with a damaged name, which would be ignored.
    if manifest.checksum != _reckoned(manifest) or encode(manifest) != data:
        raise BackupDamaged(name, "its checksum is wrong")
    return manifest


class _Format(msgspec.Struct):
    format: int


def manifests(store: BackupStore, suffix: str = COMPLETE) -> list[str]:
    """Return the names of the backups' manifests, the oldest first."""
    return [f"{FOLDER}/{name}" for name in sorted(store.names(FOLDER)) if name.endswith(suffix)]


def load(store: BackupStore, name: str) -> BackupManifest:
    """Read a manifest; raises BackupDamaged, FileNotFoundError."""
    return decode(name, store.read(name))


def find(store: BackupStore, id_: str = "") -> BackupManifest:
    """Return a backup; without an id the newest. Raises BackupDamaged, FileNotFoundError."""
    found = manifests(store)
    wanted = [name for name in found if not id_ or name == f"{FOLDER}/{id_}{COMPLETE}"]
    if not wanted:
        what = f"no backup {id_}" if id_ else "no complete backup"
        held = ", ".join(name[len(FOLDER) + 1 : -len(COMPLETE)] for name in found) or "none"
        raise FileNotFoundError(f"{what} in {store}; there: {held}")
    return load(store, wanted[-1])
