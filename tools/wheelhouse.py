"""The wheels of a node and of all that it needs, for a container's image and a Debian package."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from pathlib import Path

from tools import chroot, console, wheels
from tools.environment import LOCK, LOGS, STATE, alone, environment, python

SUITES = {(3, 11): "bookworm", (3, 13): "trixie", (3, 14): "forky"}
"""Version of Python → the suite of Debian that has it."""
PACKAGES = ("python3-venv", "systemd-sysv", "adduser")


class NotPossible(Exception):
    """Something is missing here; the text says what to do."""


def collect(folder: Path) -> None:
    """Put the wheel of this tree and those of its dependencies, and requirements.txt, in a folder.

    They are for this version of Python, and have the versions and hashes of requirements.txt.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with alone():
            (own,) = wheels.make(folder, [wheels.here()])
    except wheels.WheelFailed as error:
        raise NotPossible(f"no wheel: {error}") from error
    versions = folder / "versions.txt"
    text = LOCK.read_text(encoding="utf-8")
    versions.write_text("\n".join(re.findall(r"^[^\s;]+==[^\s;]+", text, re.MULTILINE)))
    pip = [str(python()), "-m", "pip", "--disable-pip-version-check", "download"]
    options = ["--only-binary", ":all:", "--dest", str(folder), "--constraint", str(versions)]
    wanted = f"warrenmq[broker,oauth2] @ {own.as_uri()}"
    log = LOGS / "wheelhouse.log"
    if not console.quiet("fetching its wheels", [*pip, *options, wanted], log, env=environment()):
        raise NotPossible("pip download failed")
    versions.unlink()
    for wheel in folder.glob("*.whl"):
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if wheel.name != own.name and f"sha256:{found}" not in text:
            raise NotPossible(f"{wheel.name} has a hash that {LOCK.name} has not: {found}")
    shutil.copy(LOCK, folder)


def debian(programs: dict[str, str]) -> Path:
    """Return Debian's root file system with this version of Python; made where it is missing.

    programs  program → package of those that the caller runs
    raises    NotPossible
    """
    packages = sorted(package for name, package in programs.items() if not shutil.which(name))
    if packages:
        raise NotPossible(f"programs are missing: apt-get install {' '.join(packages)}")
    suite = SUITES.get(sys.version_info[:2])
    if suite is None:
        raise NotPossible(f"Debian has no Python {sys.version_info[0]}.{sys.version_info[1]}")
    root = STATE / suite
    try:
        with chroot.locked(root):
            if not root.exists():
                console.say(f"   … installing Debian {suite} in {root}")
                chroot.make(root, suite, PACKAGES, LOGS / "chroot.log")
    except chroot.NotMade as error:
        raise NotPossible(str(error)) from error
    return root
