"""How much a directory holds while processes and threads remove files in it."""

from __future__ import annotations

import contextlib
from pathlib import Path


def bytes_held(root: Path, pattern: str = "**/*") -> int:
    """The sizes of all files below; one that is removed in the middle counts for nothing."""
    held = 0
    for path in root.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            held += path.stat().st_size if path.is_file() else 0
    return held
