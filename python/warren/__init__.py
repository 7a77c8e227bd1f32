"""The client: producer, claims, administration; `warren.local` starts a local cluster.

The names below are loaded at their first use, so that a program which needs only addresses does not
load the protocol engine.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warren.admin import Admin
    from warren.claims import ClaimReader
    from warren.connection import Connection
    from warren.producer import Producer
    from warren.stages import StageWriter
    from warren.uri import Address

__all__ = [
    "Address",
    "Admin",
    "ClaimReader",
    "Connection",
    "Producer",
    "StageWriter",
]

_HOMES = {
    "Address": "warren.uri",
    "Admin": "warren.admin",
    "ClaimReader": "warren.claims",
    "Connection": "warren.connection",
    "Producer": "warren.producer",
    "StageWriter": "warren.stages",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'warren' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
