"""Two `build.py` on one tree: what both would make is made once, and nothing waits for the dead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S
from tools import file_lock

ROOT = Path(__file__).resolve().parents[2]
COMPILING = """
import sys, time
from pathlib import Path
from tools import console, environment

place = Path(sys.argv[1])
environment.KERNEL = environment.VENV = place
environment.PREPARING = place / "state" / "preparing.lock"
environment.compiler_missing = lambda: None


def compiling(title, command, log, **rest):
    (place / "busy").touch(exist_ok=False)
    time.sleep(0.3)
    (place / "compiled" / "scan.so").touch()
    with (place / "log").open("a") as log:
        log.write("compiled\\n")
    (place / "busy").unlink()
    return True


console.quiet = compiling
print("ready", flush=True)
sys.stdin.readline()
assert environment.ensure_kernel()
"""
HOLDING = """
import sys, time
from pathlib import Path
from tools import file_lock

with file_lock.locked(Path(sys.argv[1]), "holding it"):
    print("held", flush=True)
    time.sleep(1000)
"""


@pytest.fixture
def start() -> Iterator[Callable[[str, Path], subprocess.Popen[str]]]:
    """Start a program of the tools, and return when it has said its first line."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str, place: Path) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, "-c", text, str(place)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(made)
        assert made.stdout is not None and made.stdout.readline()
        return made

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_two_that_find_changed_sources_compile_them_once(
    start: Callable[[str, Path], subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "compiled").mkdir()
    both = [start(COMPILING, tmp_path) for _ in range(2)]
    for each in both:
        assert each.stdin is not None
        each.stdin.write("now\n")
        each.stdin.flush()
    said = [each.communicate(timeout=PATIENCE_S)[0] for each in both]
    assert [each.returncode for each in both] == [0, 0]
    assert (tmp_path / "log").read_text() == "compiled\n"
    assert sum("which is preparing this tree's environment" in text for text in said) <= 1


def test_one_that_waits_says_for_which_and_goes_on_when_that_is_killed(
    start: Callable[[str, Path], subprocess.Popen[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = tmp_path / "state" / "lock"
    holder = start(HOLDING, lock)
    said, waits = list[str](), threading.Event()

    def say(text: str) -> None:
        said.append(text)
        waits.set()

    def kill() -> None:
        assert waits.wait(PATIENCE_S)
        holder.kill()

    monkeypatch.setattr(file_lock.console, "say", say)
    killer = threading.Thread(target=kill)
    killer.start()
    with file_lock.locked(lock, "testing"), file_lock.locked(lock, "testing, within"):
        assert lock.read_text() == str(os.getpid())
    killer.join()
    assert said == [f" · waiting for process {holder.pid}, which is testing ({lock})"]


def test_a_lock_that_was_removed_is_no_lock(
    start: Callable[[str, Path], subprocess.Popen[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`build.py clean` removes the file; those that waited for it meet at the new one."""
    lock = tmp_path / "lock"
    holder = start(HOLDING, lock)

    def say(text: str) -> None:
        lock.unlink()
        holder.kill()

    monkeypatch.setattr(file_lock.console, "say", say)
    with file_lock.locked(lock, "testing"):
        assert lock.read_text() == str(os.getpid())
