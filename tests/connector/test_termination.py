"""What is done before SIGTERM ends a process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from spark_world.runs import PATH

from tests.patience import PATIENCE_S

PROGRAM = """
import sys, threading, time
sys.path[:0] = {path!r}
from pyspark_warren.surroundings import before_termination
lock = threading.Lock()
def work():
    with lock:  # which the main thread has when the signal comes
        open({done!r}, "w").write("done")
    {more}
before_termination(work)
before_termination(lambda: sys.exit(9))
with lock:
    print("ready", flush=True)
    time.sleep(0.5)
time.sleep(600)
"""


@pytest.mark.parametrize("more", ["pass", "time.sleep(600)"])
def test_the_work_is_done_and_then_the_process_ends_by_the_signal(
    tmp_path: Path, more: str
) -> None:
    done = tmp_path / "done"
    program = PROGRAM.format(path=PATH, done=str(done), more=more)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait(PATIENCE_S) == -signal.SIGTERM
    assert done.read_text() == "done"
