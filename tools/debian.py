"""Programs from Debian's packages that some tests run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tools import console

PACKAGES: dict[str, str] = {"amqp-publish": "amqp-tools"}
"""Program → package. amqp-tools are command line clients written in C: a peer that is not ours."""


def missing() -> list[str]:
    """The packages whose program is not on PATH, sorted."""
    return sorted({package for program, package in PACKAGES.items() if not shutil.which(program)})


def ensure(logs: Path) -> None:
    """Install what is missing where we may (root with apt-get); say loudly what stays missing."""
    wanted = missing()
    if not wanted:
        return
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        log = logs / "apt.log"
        install = ["apt-get", "install", "-y", "--no-install-recommends", *wanted]
        title = f"installing {' '.join(wanted)}"
        if console.quiet(title, install, log, env=env):
            return
        console.quiet("refreshing the package lists", ["apt-get", "update"], log, env=env)
        console.quiet(title, install, log, env=env)
    for package in missing():
        console.say(
            f" ! {package} is missing: its tests are skipped (fail with WARREN_STRICT=1);"
            f" apt-get install {package}"
        )
