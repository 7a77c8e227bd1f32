"""What the simulated disk has of a file's name and of its bytes after a power failure."""

from __future__ import annotations

from pathlib import Path
from random import Random

from sim.whole.files import MemoryFiles

HERE, THERE = Path("/here"), Path("/there")
OLD, NEW = b"old", b"new"


def disk(seed: int = 0) -> MemoryFiles:
    """Return a disk with two directories and `/here/a`, all of it synced."""
    files = MemoryFiles(Random(seed))
    files.make_directory(HERE)
    files.make_directory(THERE)
    files.write_whole(HERE / "a", OLD)
    return files


def overwritten(files: MemoryFiles) -> int:
    """Give `a` another content and the name `b`; sync neither."""
    fd: int = files.kernel.open(HERE / "a", 0)
    files.write_at(fd, 0, [NEW])
    files.kernel.rename(HERE / "a", HERE / "b")
    return fd


def test_a_name_may_be_durable_before_the_bytes() -> None:
    files = disk()
    overwritten(files)
    assert files.as_after_power_loss(names=True).image() == {"/here/b": OLD}
    files.sync_directory(HERE)
    assert files.as_after_power_loss().image() == {"/here/b": OLD}


def test_bytes_may_be_durable_before_the_name() -> None:
    files = disk()
    fd = overwritten(files)
    assert files.as_after_power_loss(data=True).image() == {"/here/a": NEW}
    files.sync_data(fd)
    assert files.as_after_power_loss().image() == {"/here/a": NEW}


def test_a_power_failure_leaves_any_mixture_of_names_and_bytes() -> None:
    found = set()
    for seed in range(100):
        files = disk(seed)
        overwritten(files)
        files.crash()
        found.add(tuple(files.image().items()))
    assert found == {((f"/here/{name}", data),) for name in "ab" for data in (OLD, NEW)}


def test_a_move_to_another_directory_is_two_changes_and_never_loses_the_file() -> None:
    found = set()
    for seed in range(100):
        files = disk(seed)
        files.kernel.rename(HERE / "a", THERE / "a")
        files.crash()
        found.add(tuple(sorted(files.image())))
    assert found == {("/here/a",), ("/here/a", "/there/a"), ("/there/a",)}
    files = disk()
    files.kernel.rename(HERE / "a", THERE / "a")
    files.sync_directory(THERE)
    assert sorted(files.as_after_power_loss().image()) == ["/here/a", "/there/a"]
