"""Compares a queue's state with one that was restored from its snapshot, field by field.

Snapshots that are equal say nothing of a field that is in neither of them: what writes a
snapshot may forget it, and the restored member is another one from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

PACKED = frozenset(
    (
        *("contents", "order", "delayed", "letters", "filter", "filters", "origins"),
        *("standby", "changed_relays", "consumer_keys", "exclusive", "owned_relays", "sessions"),
    )
)
"""Fields that hold the same in another form after a snapshot; their own tests compare those."""


def differences(one: Any, other: Any, where: str = "state") -> Iterator[str]:
    """Yield each field that differs, by its way from the state."""
    if type(one) is not type(other):
        yield f"{where}: {one!r}, restored {other!r}"
    elif isinstance(one, list | tuple | deque) and len(one) == len(other):
        for at, (mine, its) in enumerate(zip(one, other, strict=True)):
            yield from differences(mine, its, f"{where}[{at}]")
    elif isinstance(one, dict) and one.keys() == other.keys():
        for key, value in one.items():
            yield from differences(value, other[key], f"{where}[{key!r}]")
    elif names := _fields(one):
        for name in names:
            mine, its = getattr(one, name), getattr(other, name)
            yield from differences(mine, its, f"{where}.{name}")
    elif one != other:
        yield f"{where}: {one!r}, restored {other!r}"


def _fields(value: Any) -> list[str]:
    """Return the names of what an object holds; none of a plain value."""
    if isinstance(value, msgspec.Struct):
        return [name for name in value.__struct_fields__ if name not in PACKED]
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return sorted({*slots, *getattr(value, "__dict__", ())} - PACKED)
