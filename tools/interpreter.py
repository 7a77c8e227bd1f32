"""The Python that build.py runs with, and makes its environment from.

Any Python from PYTHON_MIN on will do. One that was compiled without profile-guided optimisation
(as pyenv compiles it unless it is asked) takes up to 45 % longer for the same work, so the
distribution's is taken instead where there is one. WARREN_PYTHON names another.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools import console

PYTHON_MIN: Final = (3, 11)
MINORS: Final = (13, 12, 11, 14)
"""The minor versions of Python 3 that are looked for, the first one first."""
CHOSEN: Final = "WARREN_PYTHON"
"""The environment variable that names the Python to use: a path, or a name on PATH."""
DISTRIBUTION: Final = Path("/usr/bin")
"""Where Linux distributions have their Python. They compile it with profile-guided optimisation,
which not all of them leave in CONFIG_ARGS."""

_PROBE: Final = """
import ensurepip, pathlib, sys, sysconfig, venv
header = pathlib.Path(sysconfig.get_paths()["include"], "Python.h")
sys.exit(not header.exists())
"""


def require() -> None:
    """Continue with the Python that is best here; exit with instructions when there is none.

    This returns when that is the running one. Else its process becomes the other's.
    """
    named = os.environ.get(CHOSEN)
    if named:
        path = _executable(named)
        if path is None:
            console.stop(f"{CHOSEN} is {named!r}, which is no Python that can be run")
        if Path(path).resolve() != Path(sys.executable).resolve():
            os.execv(path, [path, *sys.argv])
    elif sys.version_info < PYTHON_MIN:
        for path in filter(None, (shutil.which(f"python3.{minor}") for minor in MINORS)):
            if can_make_venv(path):
                _continue(path, "is too old")
    elif not is_optimised():
        for path in _of_distribution():
            if can_compile(path):
                _continue(path, "was compiled without optimisation, and takes longer")
    if sys.version_info < PYTHON_MIN:
        wanted = ".".join(map(str, PYTHON_MIN))
        console.stop(
            f"{sys.executable} is Python {_version()}; Warren needs {wanted} or newer. "
            "Debian 12, Ubuntu 24.04: apt-get install python3 python3-venv; macOS: brew install "
            f"python; then run it as `python{wanted} build.py …`"
        )


def require_venv() -> None:
    """Exit with instructions where venv or ensurepip is missing, as on a plain Debian."""
    if not can_make_venv(sys.executable):
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        console.stop(
            f"{sys.executable} lacks the modules venv and ensurepip. "
            f"Debian, Ubuntu: apt-get install python{version}-venv"
        )


def is_optimised() -> bool:
    """Return whether the running Python was compiled with profile-guided optimisation."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    distributed = Path(sys.executable).resolve().parent == DISTRIBUTION
    return distributed or "--enable-optimizations" in arguments


def can_make_venv(path: str) -> bool:
    """Return whether an interpreter has the modules that create environments."""
    return _does(path, "import venv, ensurepip")


def can_compile(path: str) -> bool:
    """Return whether an interpreter creates environments, and has what extensions need."""
    return _does(path, _PROBE)


def _does(path: str, text: str) -> bool:
    probe = subprocess.run([path, "-c", text], capture_output=True, check=False)
    return probe.returncode == 0


def _of_distribution() -> Iterator[str]:
    """Return the distribution's Pythons, the running one's minor version first."""
    for minor in sorted(MINORS, key=lambda minor: minor != sys.version_info[1]):
        path = DISTRIBUTION / f"python3.{minor}"
        if path.exists():
            yield str(path)


def _executable(named: str) -> str | None:
    """Return the path of a Python itself, which may be named by a script that starts it."""
    path = shutil.which(named)
    if path is None:
        return None
    probe = [path, "-c", "import sys; print(sys.executable)"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, check=False)
    except OSError:
        return None
    said = done.stdout.strip()
    return said if done.returncode == 0 and os.access(said, os.X_OK) else None


def _continue(path: str, why: str) -> None:
    """Become the process of another Python, which is told that it was chosen."""
    console.say(
        f"Python {_version()} ({sys.executable}) {why}; continuing with {path}. "
        f"{CHOSEN}={sys.executable} keeps it"
    )
    os.environ[CHOSEN] = path
    os.execv(path, [path, *sys.argv])


def _version() -> str:
    return sys.version.split()[0]
