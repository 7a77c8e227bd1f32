"""Whether a backup's files are what they were."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from warren_wire.backups.entries import NoEntries, decode_entries
from warren_wire.backups.manifest import BackupDamaged, BackupManifest, DataFile, EntriesFile
from warren_wire.backups.store import BackupStore


def read(store: BackupStore, file: DataFile) -> bytes:
    """Read a file, and compare it with what the manifest says; raises BackupDamaged."""
    try:
        data = store.read(file.name)
    except FileNotFoundError:
        raise BackupDamaged(file.name, "it is missing") from None
    if len(data) != file.bytes:
        raise BackupDamaged(file.name, f"it has {len(data)} bytes, not {file.bytes}")
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise BackupDamaged(file.name, "its SHA-256 is not its name")
    if isinstance(file, EntriesFile):
        _check_entries(file, data)
    return data


def _check_entries(file: EntriesFile, data: bytes) -> None:
    try:
        indexes = [record[0] for record in decode_entries(data)]
    except NoEntries as error:
        raise BackupDamaged(file.name, str(error)) from error
    if (len(indexes), indexes[:1], indexes[-1:]) != (file.count, [file.first], [file.last]):
        raise BackupDamaged(file.name, "it holds other entries than the manifest says")


def damages(store: BackupStore, backups: Iterable[BackupManifest]) -> Iterator[BackupDamaged]:
    """Read each file of these backups once; yield what is wrong."""
    seen = set[str]()
    for manifest in backups:
        for name, file in manifest.files.items():
            if name in seen:
                continue
            seen.add(name)
            try:
                read(store, file)
            except BackupDamaged as damage:
                yield damage
