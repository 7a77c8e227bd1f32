"""Disks and namespaces of a run: what they do to a file, and that nothing is left of them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from nemesis import disks, network
from nemesis.disks import LOG_FLUSHED, LOG_LOST, Disks
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.live
STRICT = "WARREN_STRICT"
TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def made(tmp_path):
    """Two disks; nothing of them may be left afterwards."""
    below = tmp_path / "nodes"
    places = [below / name / "data" for name in ("a", "b")]
    below.mkdir()
    found, what = disks.make(below, places)
    if found is None:
        if os.environ.get(STRICT):
            pytest.fail(f"{STRICT} is set: {what}")
        pytest.skip(what)
    yield found
    found.close()
    assert left(below) == ""


def left(below: Path) -> str:
    """Mounts and devices that have to do with that directory."""
    mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    devices = disks.run("losetup", "--list", "--output", "BACK-FILE").splitlines()
    return "\n".join(line for line in mounts + devices if str(below) in line)


@pytest.mark.parametrize("flag", [LOG_FLUSHED, LOG_LOST])
def test_a_loss_of_power_keeps_what_was_synced_and_nothing_else(made: Disks, flag: int):
    disk = made[0]
    path = disk.place / "file"
    with path.open("wb", buffering=0) as file:
        file.write(b"synced")
        os.fsync(file.fileno())
        file.write(b", and not")
        disk.cut_power(flag)
        with pytest.raises(OSError):
            os.fsync(file.fileno())
    (made[1].place / "file").write_bytes(b"another disk")
    disk.unmount()
    disk.mount()
    # The new length may be there without the bytes: then zeros are read.
    assert path.read_bytes().rstrip(b"\0") == b"synced"
    path.write_bytes(b"it works again")


def test_a_frozen_disk_answers_when_it_is_thawed(made: Disks):
    disk = made[0]
    disk.freeze()
    wrote = threading.Event()

    def write() -> None:
        (disk.place / "file").write_bytes(b"x")
        wrote.set()

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    (made[1].place / "file").write_bytes(b"another disk")
    assert not wrote.wait(0.5)
    disk.thaw()
    disk.thaw()
    assert wrote.wait(PATIENCE_S)
    thread.join()


def test_a_full_disk_has_no_byte_left(made: Disks):
    disk = made[0]
    disk.fill()
    with pytest.raises(OSError, match="No space left"):
        (disk.place / "file").write_bytes(b"x")
    disk.unfill()
    (disk.place / "file").write_bytes(b"x")


LEFT = """
import os, sys
from pathlib import Path
from nemesis import disks, network
below = Path(sys.argv[1])
below.mkdir()
found, what = disks.make(below, [below / "a"])
found[0].freeze()
net = network.Namespaces(2)
print(os.getpid(), net.host(0), flush=True)
os._exit(9)
"""


def test_what_a_killed_run_has_left_goes_with_the_next_one(made: Disks, tmp_path: Path):
    below = tmp_path / "killed"
    done = subprocess.run(
        [sys.executable, "-c", LEFT, str(below)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}"},
    )
    assert done.returncode == 9, done.stderr
    pid, host = done.stdout.split()
    mark = f"wnem-{int(pid):x}"
    assert left(below) and mark in disks.run("ip", "netns", "list")
    own = network.Namespaces(2)
    try:
        assert own.host(0) != host, "two runs have one network"
        disks.sweep()
        assert left(below) == "" and left(made[0].place)
        assert mark not in disks.run("ip", "netns", "list")
        assert mark not in disks.run("ip", "link", "show")
        assert f"wnem-{os.getpid():x}n1" in disks.run("ip", "netns", "list")
    finally:
        own.close()
