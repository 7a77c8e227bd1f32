"""The programs that make a release: a C compiler for every machine, checks of what is uploaded.

They are in an environment of their own, `.warren/release-tools`, since few need them: the compiler
alone (`zig cc`, which has the headers and stubs of every glibc) is 400 MB.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tools import console, file_lock
from tools.environment import LOGS, ROOT, STATE

PLACE = STATE / "release-tools"
LOCK = ROOT / "requirements-release.txt"


class ToolsMissing(Exception):
    """They could not be installed; the end of pip's output is printed."""


def python() -> Path:
    """Return their interpreter, of an environment that is made when it is missing or outdated."""
    stamp = PLACE / ".stamp"
    wanted = f"{sys.version}\n{LOCK.read_text(encoding='utf-8')}"
    interpreter = PLACE / "bin" / "python"
    with file_lock.locked(STATE / "release-tools.lock", "installing what makes a release"):
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return interpreter
        shutil.rmtree(PLACE, ignore_errors=True)
        log = LOGS / "release-tools.log"
        venv = [sys.executable, "-m", "venv", str(PLACE)]
        pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install"]
        locked = [*pip, "--no-compile", "--require-hashes", "-r", str(LOCK)]
        if not console.quiet("making an environment for what makes a release", venv, log) or (
            not console.quiet(
                f"installing {LOCK.name} (a compiler of 100 MB is there)", locked, log
            )
        ):
            raise ToolsMissing(f"{LOCK.name} could not be installed")
        stamp.write_text(wanted, encoding="utf-8")
    return interpreter
