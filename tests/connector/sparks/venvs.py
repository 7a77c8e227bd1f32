"""Virtual environments with the built wheel of Warren, made from wheels and without a compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tools import console, environment, wheels
from tools.environment import LOGS, ROOT, STATE

PLACE = STATE / "sparks"
WHEELS = PLACE / "wheels"
NO_COMPILER = {"CC": "false", "CXX": "false"}
"""What is installed with these is not compiled: `false` is a compiler that always fails."""
PIP = ("-m", "pip", "--disable-pip-version-check")


class InstallFailed(Exception):
    """pip failed; its last lines are printed."""


def bare_environment(*venvs: Path) -> dict[str, str]:
    """Return an environment that knows these virtual environments, and no source of Warren."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    paths = [str(venv / "bin") for venv in venvs]
    return {**kept, "PATH": os.pathsep.join([*paths, "/usr/local/bin", "/usr/bin", "/bin"])}


def _pip(title: str, python: str, *arguments: str, **more: str) -> None:
    command = [python, *PIP, *arguments]
    env = {**os.environ, **more}
    env.pop("PYTHONPATH", None)
    if not console.quiet(title, command, LOGS / "sparks-pip.log", env=env):
        raise InstallFailed(title)


def make_wheels() -> None:
    """Put Warren's wheel, and those of all that it needs, into WHEELS."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    wanted = f"{wheels.of_this_python((ROOT / 'dist').glob('*.whl'))}[connector]"
    _pip("wheels of the connector", sys.executable, "wheel", "--wheel-dir", str(WHEELS), wanted)


def _fresh(name: str) -> tuple[Path, str]:
    place = PLACE / name
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    return place, str(place / "bin" / "python")


def _install_connector(title: str, python: str, *more: str) -> None:
    from_wheels = ["--no-index", "--find-links", str(WHEELS), *more]
    _pip(title, python, "install", *from_wheels, "warrenmq[connector]", **NO_COMPILER)


def executor(name: str) -> Path:
    """Make an environment with the connector and nothing else: PySpark is the cluster's."""
    place, python = _fresh(name)
    _install_connector(f"{name}: the connector from wheels", python)
    return place


def session(version: str, *more: str) -> Path:
    """Make an environment with that PySpark and the connector."""
    place, python = _fresh(f"pyspark-{version}")
    _pip(f"PySpark {version}", python, "install", f"pyspark=={version}", *more)
    _install_connector(f"PySpark {version}: the connector from wheels", python)
    return place


def beside(version: str, *more: str) -> Path:
    """Return the interpreter of an environment with that PySpark, and all else of this one.

    It is made once.

    more  packages that it has, too, in the versions given
    """
    names = (re.findall(r"\w+", each.partition("=")[0])[-1] for each in more)
    place = PLACE / "-".join(["beside", version, *names])
    python = place / "bin" / "python"
    (packages,) = (path for path in sys.path if path.endswith("site-packages"))
    if not (place / "made").exists():
        _, made = _fresh(place.name)
        _pip(f"PySpark {version}", made, "install", f"pyspark=={version}", *more)
        (own,) = place.glob("lib/python3*/site-packages")
        paths = [packages, *(str(ROOT / each) for each in environment.SOURCES)]
        (own / "beside.pth").write_text("\n".join(paths), encoding="utf-8")
        (place / "made").touch()
    return python


def client(version: str) -> Path:
    """Make an environment with a Spark Connect client, which has no JVM, and without Warren."""
    place, python = _fresh(f"client-{version}")
    _pip(f"pyspark-client {version}", python, "install", f"pyspark-client=={version}")
    return place


def spark_home(venv: Path) -> Path:
    """Return the Spark that came with PySpark's wheel."""
    (home,) = venv.glob("lib/python3*/site-packages/pyspark")
    return home
