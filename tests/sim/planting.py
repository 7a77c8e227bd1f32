"""Bugs that are planted in a world: what they replace, and their names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Replacement = tuple[Any, str, Any]
Plant = Callable[[], list[Replacement]]


def by_name(*plants: Plant) -> dict[str, Plant]:
    """Return the plants by their names on the command line."""
    return {plant.__name__.replace("_", "-"): plant for plant in plants}
