"""The scenarios, one module per subject; each runs alike on both brokers."""

from __future__ import annotations

import importlib
import pkgutil


def load() -> None:
    """Import all modules, which registers their scenarios."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
