"""A data directory serves the node it was made for, one process at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.raft.storage.kit import Disk
from warren_raft.storage.errors import DirectoryRefused


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def made(root: Path) -> None:
    disk = Disk(root)
    disk.write(1, 1, [b"a"])
    disk.close()


def says(data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / "node.json").write_bytes(data)


@pytest.mark.parametrize(
    ("node", "cluster", "change", "reason", "remedy"),
    [
        ("n2", "c", None, "belongs to node 'n1', this node is 'n2'", "another directory"),
        ("n1", "d", None, "belongs to cluster 'c', this node is of cluster 'd'", "another"),
        ("n1", "c", says(b'{"format":2,"cluster":"c","node":"n1"}'), "format 2", "version that"),
        ("n1", "c", says(b"{"), "cannot be read", "restore"),
        ("n1", "c", says(b'{"format":1,"cluster":"c","node":"\xff"}'), "cannot be read", "restore"),
        ("n1", "c", lambda d: (d / "node.json").unlink(), "no node.json", "empty directory"),
    ],
)  # fmt: skip
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
