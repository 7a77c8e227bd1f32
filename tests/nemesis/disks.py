"""The disks of a run: an ext4 file system per node, in a file, on a loop device.

Everything that is made carries the run's process id in its name (the image's), so that several runs
can go at once, and so that a run finds what another one has left behind that was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import struct
import subprocess
import time
from pathlib import Path

DISK_BYTES = 512 * 1024 * 1024
IMAGE = re.compile(r"warren-nemesis-(\d+)-node-\d+\.img")
SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN: from then on nothing is written, and every call fails."""
LOG_FLUSHED, LOG_LOST = 1, 2
"""What of the file system's own journal is on the disk: all, or what happened to be."""
BALLAST = "ballast"
BLOCK_BYTES = 4096
UNMOUNT_S = 10.0
POLL_S = 0.05


class NoDisks(Exception):
    """Not root, no loop devices, or no mkfs.ext4; the text says which."""


class Disk:
    """One node's file system, mounted at its data directory."""

    def __init__(self, image: Path, place: Path) -> None:
        self.image = image
        self.place = place
        self.frozen = False

    def make(self) -> None:
        """Make and mount it; raises OSError, CalledProcessError."""
        self.place.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as file:
            file.truncate(DISK_BYTES)
        run("mkfs.ext4", "-q", "-F", "-m", "0", str(self.image))
        self.mount()
        (self.place / "lost+found").rmdir()

    def mount(self) -> None:
        """As after a reboot: the journal is played back."""
        run("mount", "-o", "loop", str(self.image), str(self.place))

    def unmount(self) -> None:
        """Everything that has files open there must be gone."""
        run("umount", str(self.place))
        ends = time.monotonic() + UNMOUNT_S
        # Until the device is free the old file system, which fails every call, may still be there.
        while run("losetup", "-j", str(self.image)):
            if time.monotonic() > ends:
                raise OSError(f"{self.image} is in use after it was unmounted")
            time.sleep(POLL_S)

    def freeze(self) -> None:
        """No write, and no sync, returns until `thaw`."""
        self.frozen = True
        run("fsfreeze", "--freeze", str(self.place))

    def thaw(self) -> None:
        """It answers again; nothing when it does."""
        if self.frozen:
            self.frozen = False
            run("fsfreeze", "--unfreeze", str(self.place))

    def cut_power(self, flag: int) -> None:
        """What was not synced is lost; LOG_FLUSHED or LOG_LOST. `unmount` and `mount` follow."""
        fd = os.open(self.place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, struct.pack("I", flag))
        finally:
            os.close(fd)

    def fill(self) -> None:
        """Leave no byte."""
        with (self.place / BALLAST).open("wb", buffering=0) as file:
            end = 0
            for step in (1 << 28, 1 << 24, 1 << 20, 1 << 16, BLOCK_BYTES):
                try:
                    while True:
                        os.posix_fallocate(file.fileno(), end, step)
                        end += step
                except OSError:
                    continue  # a smaller step may still find room

    def unfill(self) -> None:
        """There is space again."""
        (self.place / BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing of it is left; its node must be down."""
        self.thaw()
        subprocess.run(["umount", str(self.place)], capture_output=True, check=False)
        self.image.unlink(missing_ok=True)


class Disks:
    """All nodes' disks, below a directory that is mounted onto itself.

    The directory is shared with every mount namespace that is made while it is there: a process
    that makes one (another run does) copies the mounts, and a copy that were left would keep a file
    system alive that was unmounted here.
    """

    def __init__(self, below: Path, places: list[Path]) -> None:
        self._below = below
        self.disks = [
            Disk(below / f"warren-nemesis-{os.getpid()}-node-{i}.img", place)
            for i, place in enumerate(places)
        ]
        try:
            run("mount", "--bind", str(below), str(below))
            run("mount", "--make-shared", str(below))
            for disk in self.disks:
                disk.make()
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            raise NoDisks((getattr(error, "stderr", "") or str(error)).strip()) from error

    def __getitem__(self, i: int) -> Disk:
        return self.disks[i]

    def close(self) -> None:
        """Unmount and remove everything."""
        for disk in self.disks:
            disk.close()
        subprocess.run(["umount", str(self._below)], capture_output=True, check=False)


def make(below: Path, places: list[Path]) -> tuple[Disks | None, str]:
    """One for each of those data directories, if that is possible; and what it is, for people."""
    missing = [tool for tool in ("mkfs.ext4", "losetup", "fsfreeze") if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        return None, f"no disks of their own: {', '.join(missing) or 'mounting needs root'}"
    sweep()
    try:
        return Disks(below, places), "one ext4 per node"
    except NoDisks as error:
        return None, f"no disks of their own: {error}"


def sweep() -> None:
    """Remove what runs have left that were killed before they could clean up."""
    found = json.loads(run("losetup", "--json", "--list", "--output", "NAME,BACK-FILE") or "{}")
    for device in found.get("loopdevices", ()):
        image = Path(str(device["back-file"]).removesuffix(" (deleted)"))
        name = IMAGE.fullmatch(image.name)
        if name is None or alive(int(name[1])):
            continue
        for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            source, place = line.split(" ")[:2]
            if source == device["name"]:
                for command in (["fsfreeze", "--unfreeze", place], ["umount", place]):
                    subprocess.run(command, capture_output=True, check=False)
        subprocess.run(["umount", str(image.parent)], capture_output=True, check=False)
        image.unlink(missing_ok=True)


def alive(pid: int) -> bool:
    """A process has that number."""
    return Path(f"/proc/{pid}").exists()


def run(*command: str) -> str:
    """Its output; raises CalledProcessError."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
