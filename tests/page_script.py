"""The blocks of a page as one shell script, to be run as a reader pastes them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^```(?P<kind>sh|python)(?: title=\"(?P<file>[^\"]+)\")?\n(?P<text>.*?)^```$", re.M | re.S
)
RUN_S_MAX = 600


def script(page: Path) -> str:
    """Return the page's `sh` and `python` blocks in order; one with a title is a file's content.

    Blocks of other kinds (`console`: what needs the network; `text`) are left out.
    """
    parts = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if block["kind"] == "sh":
            parts.append(block["text"])
        else:
            goal = f"cat > {block['file']}" if block["file"] else "python3 -"
            parts.append(f"{goal} <<'END_OF_BLOCK'\n{block['text']}END_OF_BLOCK\n")
    assert parts, page
    return "".join(parts)


def run(page: Path, place: Path, more: Mapping[str, str] | None = None) -> str:
    """Run the page's blocks in a directory with the environment's commands; return the output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "PYTHONPATH", "WARREN_"))
    }
    done = subprocess.run(
        ["sh", "-eux"],
        input=script(page),
        cwd=place,
        env={**kept, "PATH": path, **(more or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout
