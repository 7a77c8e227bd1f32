"""A Debian chroot: of RabbitMQ's newest package, and what Warren's packages are tried in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from tools import file_lock

MIRROR = "http://deb.debian.org/debian"
TOOL = "mmdebstrap"
OLD_MIRROR = 'Acquire::Check-Valid-Until "false"'
"""Accept an outdated mirror; signatures are still checked."""


class NotMade(Exception):
    """The chroot cannot be made; the text says why."""


def locked(root: Path) -> AbstractContextManager[None]:
    """Hold the lock of `root`: one process at a time looks for it, makes it and mounts in it.

    1. Two processes find nothing there, and both make it.  2. The second fails, because the
    directory is not empty, and removes it.  3. The first has a chroot without files.
    """
    return file_lock.locked(root.with_name(root.name + ".lock"), f"making or using {root}")


def make(root: Path, suite: str, packages: Sequence[str], log: Path) -> None:
    """Install suite `suite` with these packages in `root`; the caller has its lock.

    It is made beside `root`, and renamed when it is whole; what is there of an attempt that was
    interrupted is removed. Takes about a minute, and about 200 MB from the mirror; needs root.

    raises  NotMade
    """
    if os.geteuid() != 0:
        raise NotMade("making its chroot needs root")
    log.parent.mkdir(parents=True, exist_ok=True)
    part = root.with_name(root.name + ".part")
    with log.open("wb") as out:
        if shutil.which(TOOL) is None:
            _run(["apt-get", "update"], out)
            _run(["apt-get", "install", "-y", "--no-install-recommends", TOOL], out)
        _remove(part)
        options = ["--variant=minbase", f"--aptopt={OLD_MIRROR}", f"--include={','.join(packages)}"]
        _run([TOOL, *options, suite, str(part), MIRROR], out)
    (part / "etc/hosts").write_text("127.0.0.1 localhost\n")
    _remove(root)
    part.rename(root)


def _remove(root: Path) -> None:
    """Remove a chroot, or what there is of one, with what is mounted in it."""
    if (root / "proc").is_mount():
        _run(["umount", str(root / "proc")], None)
    if root.exists():
        shutil.rmtree(root)


def mount(root: Path) -> None:
    """Mount /proc in `root` unless it is mounted; a reboot undoes it.

    raises  NotMade
    """
    if not (root / "proc").is_mount():
        _run(["mount", "-t", "proc", "proc", str(root / "proc")], None)


def _run(command: Sequence[str], out: IO[bytes] | None) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"),
        check=False,
    )
    if done.returncode != 0:
        raise NotMade(f"{' '.join(command)} ended with {done.returncode}")
