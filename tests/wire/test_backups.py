"""A backup's files: what is damaged is found and named, wherever they are kept."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from msgspec.structs import replace

from warren_wire.backups import check
from warren_wire.backups import manifest as m
from warren_wire.backups.entries import NoEntries, decode_entries, encode_entry
from warren_wire.backups.store import BackupStore, DirectoryStore, StoreUnusable, store_of

ENTRIES = [(3, 1, 1, 1_000, b"three"), (7, 2, 1, 2_000, b""), (8, 2, 0, 2_000, b"x" * 40)]


def put(store: BackupStore, data: bytes) -> tuple[str, int]:
    file = m.DataFile(hashlib.sha256(data).hexdigest(), len(data))
    store.write(file.name, data)
    return file.sha256, file.bytes


def small(store: BackupStore, id_: str = "20261129T150000Z") -> m.BackupManifest:
    """Make a backup of definitions and one queue."""
    entries = put(store, b"".join(encode_entry(*each) for each in ENTRIES))
    state, definitions = put(store, b"the state"), put(store, b"the definitions")
    held = ("a", "b", "c")
    groups = (
        m.GroupCopy(0, "", "", 5, 1, 0, held, (m.DataFile(*definitions),), ()),
        m.GroupCopy(
            9, "/", "q", 8, 2, 0, held, (m.DataFile(*state),), (m.EntriesFile(*entries, 3, 8, 3),)
        ),
    )
    manifest = m.BackupManifest(
        1, id_, "2026-11-29T15:00:00Z", "0.1.0", "local", "1a2b", 1, groups, (("/", "away"),)
    )
    store.write(manifest.file(), m.encode(manifest))
    return m.load(store, manifest.file())


def found(store: BackupStore, manifest: m.BackupManifest) -> list[str]:
    """Return the names of what is damaged."""
    try:
        loaded = m.load(store, manifest.file())
    except m.BackupDamaged as damage:
        return [damage.name]
    return [damage.name for damage in check.damages(store, [loaded])]


def test_each_damaged_byte_of_a_backup_is_found(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    manifest = small(store)
    assert found(store, manifest) == []
    for name in [manifest.file(), *manifest.files]:
        whole = store.read(name)
        for at in range(len(whole)):
            store.write(name, whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
            assert found(store, manifest) == [name], (name, at)
        for other in (b"", whole[:-1], whole + b"\n"):
            store.write(name, other)
            assert found(store, manifest) == [name], (name, len(other))
        store.write(name, whole)
    store.remove(next(iter(manifest.files)))
    assert found(store, manifest) == [next(iter(manifest.files))]


def test_entries_that_the_manifest_does_not_name_are_found(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    manifest = small(store)
    (file,) = manifest.groups[1].entries
    for other in (replace(file, first=2), replace(file, last=9), replace(file, count=2)):
        with pytest.raises(m.BackupDamaged, match="other entries"):
            check.read(store, other)


def test_records_are_read_as_they_were_written() -> None:
    data = b"".join(encode_entry(*each) for each in ENTRIES)
    assert list(decode_entries(data)) == ENTRIES
    with pytest.raises(NoEntries, match="ends at"):
        list(decode_entries(data[:-1]))
    with pytest.raises(NoEntries, match="follows"):
        list(decode_entries(data + data))


def test_a_backup_is_found_by_id_or_the_newest(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    with pytest.raises(FileNotFoundError, match="no complete backup"):
        m.find(store)
    older, newer = small(store), small(store, "20261130T150000Z")
    assert m.find(store) == newer
    assert m.find(store, older.id) == older
    with pytest.raises(FileNotFoundError, match=r"no backup 2027.*there: 2026"):
        m.find(store, "2027")


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_an_object_store_keeps_backups_as_a_directory_does(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("fsspec")
    root = f"/{tmp_path.name}" if kind == "memory" else str(tmp_path)
    store = store_of(f"{kind}://{root}/here")
    assert store.names(m.FOLDER) == []
    manifest = small(store)
    assert m.manifests(store) == [manifest.file()]
    assert m.find(store) == manifest
    assert found(store, manifest) == []
    name = manifest.groups[1].entries[0].name
    store.write(name, b"other")
    assert found(store, manifest) == [name]
    store.remove(name)
    assert found(store, manifest) == [name]
    assert store_of(f"{kind}://{root}/here").names("data") != []


def test_a_store_that_cannot_be_used_is_named() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(StoreUnusable, match="nothing://"):
        store_of("nothing://bucket/folder")
