"""The parts of the reference that the code has: tables for `<!-- generated: NAME -->` in a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MAKERS: Final[dict[str, Callable[[], str]]] = {}
"""Name of a part → what makes its Markdown."""


def made(name: str) -> str:
    """Return the Markdown of a part."""
    return MAKERS[name]()
