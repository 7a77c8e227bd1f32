"""Fetch uPlot, which draws the charts of the management UI, from the npm registry.

It is not in the repository: its files are laid beside the UI's, where the wheel takes them from.
Without them the UI has no charts, and everything else.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from tools import console
from tools.environment import LOGS, ROOT

VERSION: Final = "1.6.32"
PLACE: Final = ROOT / "broker" / "warren_broker" / "http" / "uplot"
DIGESTS: Final = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "dist/uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "dist/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""File of the package → its SHA-256."""


def ensure() -> bool:
    """Fetch the files unless they are there; return whether they are, and say why not."""
    if all(_is(PLACE / Path(name).name, digest) for name, digest in DIGESTS.items()):
        return True
    npm = shutil.which("npm")
    if npm is None:
        console.say("  no npm: the management UI has no charts; apt-get install npm")
        return False
    with tempfile.TemporaryDirectory(prefix="warren-uplot-") as work:
        command = [npm, "pack", f"uplot@{VERSION}", "--silent", "--pack-destination", work]
        if not console.quiet(
            f"fetching uPlot {VERSION}", command, LOGS / "npm.log", cwd=Path(work)
        ):
            return False
        (archive,) = Path(work).glob("*.tgz")
        return _lay(archive)


def _lay(archive: Path) -> bool:
    """Lay the archive's files beside the UI's, if each is the one that was looked at.

    They are read one by one: nothing else of the archive reaches the disk, and the filters of
    `extractall` are not in Python before 3.11.4, as Debian 12 has it.
    """
    contents: dict[str, bytes] = {}
    with tarfile.open(archive) as opened:
        for name, digest in DIGESTS.items():
            try:
                member = opened.extractfile(f"package/{name}")
            except KeyError:
                member = None
            contents[name] = b"" if member is None else member.read()
            if hashlib.sha256(contents[name]).hexdigest() != digest:
                console.say(f" ✗ uPlot {VERSION}: {name} is not the file that was looked at")
                return False
    PLACE.mkdir(exist_ok=True)
    for name, content in contents.items():
        (PLACE / Path(name).name).write_bytes(content)
    return True


def _is(path: Path, digest: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except OSError:
        return False
