"""Which Python build.py continues with: the one that was asked for, or an optimised one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools import interpreter

ROOT = Path(__file__).resolve().parents[2]

STARTED = """
import sys
sys.path.insert(0, {root!r})
from tools import interpreter
if {plain}:
    interpreter.is_optimised = lambda: {running!r} in sys.executable
interpreter.DISTRIBUTION = interpreter.Path({distribution!r})
interpreter.require()
print("ran", sys.executable, *sys.argv[1:])
"""


def a_python(folder: Path, name: str, text: str = 'exec "$PYTHON" "$@"') -> Path:
    """A script that does what `text` says: it starts the running Python, as pyenv's shims do."""
    folder.mkdir(exist_ok=True)
    made = folder / name
    made.write_text(f"#!/bin/sh\nPYTHON={sys.executable!r}\n{text}\n")
    made.chmod(0o755)
    return made


def start(
    tmp_path: Path, *, plain: bool = True, running: str = "never", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Start a program that chooses as build.py does, with a distribution in `tmp_path`/bin."""
    program = tmp_path / "program.py"
    program.write_text(
        STARTED.format(
            root=str(ROOT), plain=plain, running=running, distribution=str(tmp_path / "bin")
        )
    )
    env = {name: value for name, value in os.environ.items() if name != interpreter.CHOSEN}
    return subprocess.run(
        [sys.executable, str(program), "an argument"],
        env={**env, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_an_optimised_python_of_the_distribution_is_continued_with(tmp_path: Path) -> None:
    newer = a_python(tmp_path / "bin", f"python3.{sys.version_info[1]}")
    done = start(tmp_path)
    assert f"continuing with {newer}" in done.stdout, done.stderr
    assert f"{interpreter.CHOSEN}={sys.executable} keeps it" in done.stdout
    assert done.stdout.splitlines()[-1] == f"ran {sys.executable} an argument"


def test_one_that_cannot_make_environments_or_compile_is_not(tmp_path: Path) -> None:
    a_python(tmp_path / "bin", f"python3.{sys.version_info[1]}", "exit 1")
    done = start(tmp_path)
    assert done.stdout == f"ran {sys.executable} an argument\n", done.stderr


def test_an_optimised_python_is_kept(tmp_path: Path) -> None:
    a_python(tmp_path / "bin", f"python3.{sys.version_info[1]}")
    done = start(tmp_path, running=sys.executable)
    assert done.stdout == f"ran {sys.executable} an argument\n", done.stderr


def test_the_one_that_is_named_is_taken_also_through_a_script(tmp_path: Path) -> None:
    """A script never is the running program: compared by its path it would be started for ever."""
    a_python(tmp_path / "bin", f"python3.{sys.version_info[1]}")
    shim = a_python(tmp_path / "shims", "some-python")
    done = start(tmp_path, WARREN_PYTHON=str(shim))
    assert done.stdout == f"ran {sys.executable} an argument\n", done.stderr


@pytest.mark.parametrize("named", ["no-such-python", "true", "false"])
def test_a_name_of_no_python_is_refused(tmp_path: Path, named: str) -> None:
    done = start(tmp_path, WARREN_PYTHON=named)
    assert done.returncode == 1
    assert f"WARREN_PYTHON is '{named}', which is no Python that can be run" in done.stderr
