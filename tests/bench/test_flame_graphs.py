"""Flame graphs of the bench: the functions of a process that works, at both levels."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import flame_graphs
from bench.flame_graphs import REFUSED, Watched, folder_name, index, profile
from bench.generator import Missing

WORK = """
import hashlib, sys
def hash_much():
    data = bytes(10_000_000)
    while True:
        hashlib.sha256(data)
print("ready", flush=True)
hash_much()
"""
PARENT = f"{sys.executable} -c '{WORK}'; true"
"""A shell that has started a Python process, as a JVM has started Spark's workers."""


@contextmanager
def working(command: list[str]) -> Iterator[int]:
    """Run a process that works until the end of the block; yield its pid."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        yield child.pid
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def skip_if_refused(missing: str) -> None:
    """Skip where a process may not look into another one; where every test is to run, fail."""
    if missing == REFUSED:
        assert "WARREN_STRICT" not in os.environ, REFUSED
        pytest.skip(REFUSED)


def graphs(place: Path, watched: Watched) -> tuple[str, ...]:
    """Return the texts of a process's two graphs."""
    missing = profile(place, [watched], lambda: subprocess.run(["sleep", "1"], check=True))
    skip_if_refused(missing)
    assert not missing
    return tuple((place / f"one-{level}.svg").read_text() for level in flame_graphs.LEVELS)


def test_a_graph_has_the_functions_of_python_and_another_those_of_c(tmp_path):
    with working([sys.executable, "-c", WORK]) as pid:
        python, native = graphs(tmp_path, Watched("one", pid))
    assert "hash_much" in python
    assert "hash_much" in native
    assert "libcrypto" in native or "sha256" in native.lower()
    assert "libcrypto" not in python
    assert not list(tmp_path.glob("*.log"))


def test_processes_below_another_are_in_its_graph(tmp_path):
    with working(["sh", "-c", PARENT]) as pid:
        python, _ = graphs(tmp_path, Watched("one", pid, below=True))
    assert "hash_much" in python


def test_a_process_that_is_no_python_is_named_as_the_reason(tmp_path):
    with working(["sh", "-c", "echo ready; sleep 60; true"]) as pid:
        missing = profile(tmp_path, [Watched("one", pid)], lambda: None)
    skip_if_refused(missing)
    assert "python" in missing.lower()


def test_without_maven_the_graph_of_a_jvm_is_missing_by_name(tmp_path, monkeypatch):
    monkeypatch.setattr(flame_graphs, "PLACE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = profile(tmp_path / "graphs", [Watched("jvm", 1, java=True)], lambda: None)
    assert missing == "the JVM's graph needs Maven for async-profiler: apt-get install maven"


def test_the_index_links_every_graph(tmp_path):
    assert index(tmp_path) is None
    place = tmp_path / "loads" / folder_name("1 KB, window 100")
    place.mkdir(parents=True)
    (place / "node-0-leader-native.svg").touch()
    (place / "jvm.html").touch()
    page = index(tmp_path)
    assert page is not None
    text = page.read_text()
    assert 'href="loads/1-kb-window-100/node-0-leader-native.svg"' in text
    assert 'href="loads/1-kb-window-100/jvm.html"' in text


def test_a_profiler_that_cannot_look_is_missing():
    with pytest.raises(Missing, match="async-profiler refused"):
        flame_graphs._jcmd(1, Path("/none"), "start")
