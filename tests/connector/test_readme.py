"""README's session, run from its text as a reader would paste it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import pages

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow, pytest.mark.long]

PYTHON_WITHOUT_US = "#!/bin/sh\necho 'no module named pyspark_warren here' >&2\nexit 1\n"
RUN_S_MAX = 600


def test_the_session_of_the_readme_did_not_find_the_data_source(tmp_path: Path) -> None:
    # Spark plans with the `python3` of the PATH unless told otherwise, and that is seldom the one
    # that runs the session: here it is one that can do nothing.
    other = tmp_path / "bin" / "python3"
    other.parent.mkdir()
    other.write_text(PYTHON_WITHOUT_US)
    other.chmod(0o755)
    (session,) = pages.python_blocks("README.md")
    lines = run(tmp_path, session, f"{other.parent}{os.pathsep}{os.environ['PATH']}")
    assert lines[-1] == "10000 0"


def run(place: Path, text: str, path: str) -> list[str]:
    """Run a session in that directory; return the lines that it printed."""
    (place / "session.py").write_text(text)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "PYTHONPATH"))
    }
    done = subprocess.run(
        [sys.executable, "session.py"],
        cwd=place,
        env=environment | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip().splitlines()
