"""Spark's Python processes that begin as copies are what new interpreters would be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from spark_world import probe
from spark_world.runs import PATH
from spark_world.warm_python import interpreter

from tests.patience import PATIENCE_S


def run(program: str, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program as Spark does."""
    return subprocess.run(
        [program, *words],
        input="from the input",
        capture_output=True,
        text=True,
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(PATH),
            "PYTHONHASHSEED": "0",
            "SAID": "in the environment",
        },
        check=False,
    )


def test_a_copy_is_what_a_new_interpreter_would_be(tmp_path: Path) -> None:
    words = ("-m", "spark_world.probe", "tell", "two words")
    warm, cold = (run(program, tmp_path, *words) for program in (interpreter(), sys.executable))
    assert (warm.stderr, cold.stderr) == ("True\n", "False\n"), "one has imported before"
    assert "in the environment" in warm.stdout and "from the input" in warm.stdout
    assert warm.stdout == cold.stdout
    assert warm.returncode == cold.returncode == probe.EXIT_CODE


def test_a_copy_ends_with_what_spark_knows_as_its_process(tmp_path: Path) -> None:
    words = [interpreter(), "-m", "spark_world.probe", "wait"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(PATH)}
    for end in (subprocess.Popen.terminate, subprocess.Popen.kill):
        known = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment)
        assert known.stdout is not None
        copy = int(known.stdout.readline())
        assert copy != known.pid
        end(known)
        known.communicate()
        deadline = time.monotonic() + PATIENCE_S
        while Path(f"/proc/{copy}").exists():
            assert time.monotonic() < deadline, "it outlives what Spark has ended"
            time.sleep(0.01)


def test_whatever_else_is_started_is_started_as_ever(tmp_path: Path) -> None:
    done = run(interpreter(), tmp_path, "-c", "import sys; print(sys.executable, sys.argv)", "x")
    assert done.stdout == f"{sys.executable} ['-c', 'x']\n"
