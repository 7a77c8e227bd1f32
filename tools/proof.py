"""What the verbs that try a package in a machine or container share: waiting, and saying no."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 180.0


class Failed(Exception):
    """Something is not as it is to be."""


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until it holds; raises Failed."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            raise Failed(f"waited {PATIENCE_S:.0f} s for {what}")
        time.sleep(0.5)


def require(holds: bool, what: str) -> None:
    """Raise Failed unless it holds."""
    if not holds:
        raise Failed(what)
