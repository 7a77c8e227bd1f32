"""A Debian chroot, for the newest RabbitMQ that Debian packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO

MIRROR = "http://deb.debian.org/debian"
TOOL = "mmdebstrap"
PACKAGE = "rabbitmq-server"
OLD_MIRROR = 'Acquire::Check-Valid-Until "false"'
"""Accept an outdated mirror; signatures are still checked."""


class NotMade(Exception):
    """The chroot cannot be made; the text says why."""


def make(root: Path, suite: str, log: Path) -> None:
    """Install suite `suite` with RabbitMQ in `root`, which must be empty or missing.

    Takes about a minute, and about 200 MB from the mirror; needs root.

    raises  NotMade
    """
    if os.geteuid() != 0:
        raise NotMade("making its chroot needs root")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        if shutil.which(TOOL) is None:
            _run(["apt-get", "update"], out)
            _run(["apt-get", "install", "-y", "--no-install-recommends", TOOL], out)
        try:
            _run(
                [
                    TOOL,
                    "--variant=minbase",
                    f"--aptopt={OLD_MIRROR}",
                    f"--include={PACKAGE}",
                    suite,
                    str(root),
                    MIRROR,
                ],
                out,
            )
        except NotMade:
            shutil.rmtree(root, ignore_errors=True)
            raise
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")


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
