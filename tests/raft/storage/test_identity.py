"""A data directory serves the node it was made for, one process at a time."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.raft.storage.kit import Disk
from warren_raft.storage.errors import DirectoryRefused
from warren_raft.storage.files import Files
from warren_raft.storage.identity import open_directory


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def made(root: Path) -> None:
    disk = Disk(root)
    disk.write(1, 1, [b"a"])
    disk.close()


OF_FORMAT = b'{"format":%s,"cluster":"c","node":"n1","disk":"0123456789abcdef"}'


def says(data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / "node.json").write_bytes(data)


@pytest.mark.parametrize(
    ("node", "cluster", "change", "reason", "remedy"),
    [
        ("n2", "c", None, "belongs to node 'n1', this node is 'n2'", "another directory"),
        ("n1", "d", None, "belongs to cluster 'c', this node is of cluster 'd'", "another"),
        (
            "n1",
            "c",
            says(OF_FORMAT % b"5"),
            "has format 5, and this version reads",
            "empty",
        ),
        ("n1", "c", says(OF_FORMAT % b"2"), "or one from before the release 0.1.0", "version that"),
        ("n1", "c", says(b"{"), "cannot be read", "restore"),
        ("n1", "c", says(b'{"format":1,"cluster":"c","node":"\xff"}'), "cannot be read", "restore"),
        ("n1", "c", says(b'{"format":1,"cluster":"c","node":"n1"}'), "cannot be read", "restore"),
        ("n1", "c", says(OF_FORMAT % b"1"), "it differs from its encoding", "restore"),
        ("n1", "c", lambda d: (d / "node.json").unlink(), "no node.json", "empty directory"),
    ],
)
def test_a_strangers_directory_is_refused_untouched(
    tmp_path: Path,
    node: str,
    cluster: str,
    change: Callable[[Path], object] | None,
    reason: str,
    remedy: str,
) -> None:
    made(tmp_path)
    if change is not None:
        change(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(DirectoryRefused) as refused:
        Disk(tmp_path, node=node, cluster=cluster)
    assert reason in str(refused.value) and remedy in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert tree(tmp_path) == before


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with pytest.raises(DirectoryRefused, match="another process uses it"):
        Disk(tmp_path)
    disk.close()
    Disk(tmp_path).close()


def identity(root: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((root / "node.json").read_bytes())
    return found


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_a_directory_that_cannot_be_written_is_refused_with_what_to_do(
    tmp_path: Path, code: int
) -> None:
    class NoWrites(Files):
        def lock(self, path: Path) -> int | None:
            raise OSError(code, os.strerror(code), str(path))

    with pytest.raises(DirectoryRefused, match="cannot be written: .* mounted for writing"):
        open_directory(NoWrites(), tmp_path / "n1", "c", "n1")


def test_a_disk_keeps_its_number_and_another_one_gets_another(tmp_path: Path) -> None:
    made(tmp_path / "1")
    made(tmp_path / "2")
    first = identity(tmp_path / "1")
    assert first["format"] == 1 and first["formed"] is False
    assert len(str(first["disk"])) == 16 and first["disk"] != identity(tmp_path / "2")["disk"]
    made(tmp_path / "1")
    assert identity(tmp_path / "1") == first


def test_every_flipped_bit_of_the_identity_is_refused_untouched(tmp_path: Path) -> None:
    """An identity of `disk` would make it another disk: its data would count as lost."""
    disk = Disk(tmp_path)
    disk.store.directory.change(
        formed=True,
        cluster_id="1" * 16,
        founders={"n1": "0" * 16},
        peers={"n2": ("h", 1)},
    )
    disk.close()
    path = tmp_path / "node.json"
    intact = path.read_bytes()
    for at in range(len(intact) - 1):
        for bit in range(8):
            damaged = bytearray(intact)
            damaged[at] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(DirectoryRefused):
                Disk(tmp_path)
            assert path.read_bytes() == damaged
    path.write_bytes(intact)
    Disk(tmp_path).close()


def test_what_is_changed_is_there_after_a_restart(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.store.directory.change(formed=True, peers={"n2": ("10.0.0.2", 25672)})
    disk.close()
    disk = Disk(tmp_path)
    found = disk.store.directory.identity
    assert found.formed and found.peers == {"n2": ("10.0.0.2", 25672)}
    disk.close()
