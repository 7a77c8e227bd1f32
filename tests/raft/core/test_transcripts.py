"""Every transcript prints what it says it prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.transcript import play, transcripts


@pytest.mark.parametrize("path", transcripts(), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    text = path.read_text()
    played = play(text)
    if os.environ.get("WARREN_REWRITE") == "1":
        path.write_text(played)
        return
    assert played == text, f"run with WARREN_REWRITE=1, then read the difference in {path.name}"
