"""Fetch named files of a package of the npm registry, each with the digest that was looked at.

What browsers load is not in the repository: it is laid where the wheel or the documentation takes
it from.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools import console
from tools.environment import LOGS


def ensure(package: str, version: str, digests: Mapping[str, str], place: Path) -> bool:
    """Lay files of a package in `place` unless they are there; return whether they are.

    digests  file of the package → its SHA-256; it is laid under the last part of its name
    """
    if all(_is(place / Path(name).name, digest) for name, digest in digests.items()):
        return True
    npm = shutil.which("npm")
    if npm is None:
        console.say(f"  no npm, so no {package}; apt-get install npm")
        return False
    with tempfile.TemporaryDirectory(prefix="warren-npm-") as work:
        command = [npm, "pack", f"{package}@{version}", "--silent", "--pack-destination", work]
        if not console.quiet(
            f"fetching {package} {version}", command, LOGS / "npm.log", cwd=Path(work)
        ):
            return False
        (archive,) = Path(work).glob("*.tgz")
        return _lay(archive, f"{package} {version}", digests, place)


def _lay(archive: Path, title: str, digests: Mapping[str, str], place: Path) -> bool:
    """Lay the archive's files in `place`, if each is the one that was looked at.

    They are read one by one: nothing else of the archive reaches the disk, and the filters of
    `extractall` are not in Python before 3.11.4, as Debian 12 has it.
    """
    contents: dict[str, bytes] = {}
    with tarfile.open(archive) as opened:
        for name, digest in digests.items():
            try:
                member = opened.extractfile(f"package/{name}")
            except KeyError:
                member = None
            contents[name] = b"" if member is None else member.read()
            if hashlib.sha256(contents[name]).hexdigest() != digest:
                console.say(f" ✗ {title}: {name} is not the file that was looked at")
                return False
    place.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (place / Path(name).name).write_bytes(content)
    return True


def _is(path: Path, digest: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except OSError:
        return False
