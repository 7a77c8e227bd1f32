"""The result of an import of definitions as `/management` shows it."""

from __future__ import annotations

from typing import Any

import msgspec


class NotHonoured(msgspec.Struct, frozen=True):
    """Something in a file of definitions that has no effect, or not the one it asks for.

    object  such as `queue 'q' in vhost '/'`
    key     of the object, such as `arguments.x-queue-type`; "": the object as a whole
    reason  why, and whether the object was left out or is kept without it
    """

    object: str
    key: str
    reason: str

    def why(self) -> str:
        """Return the reason, after the key where there is one."""
        return f"{self.key}: {self.reason}" if self.key else self.reason


class ImportCount(msgspec.Struct, frozen=True):
    """Numbers of objects of one kind: created, changed, left alone since they were so already."""

    created: int = 0
    changed: int = 0
    unchanged: int = 0


class ImportReport(msgspec.Struct, frozen=True):
    """What an import has done, or would do (dry_run).

    counts     by kind, in the order of the import
    created, changed, unchanged, not_honoured  the first ones, by name
    not_honoured_count  how many there are
    """

    dry_run: bool
    counts: dict[str, ImportCount]
    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    not_honoured: tuple[NotHonoured, ...] = ()
    not_honoured_count: int = 0

    def summary(self) -> str:
        """Return the numbers in words."""
        shown = [
            f"{kind.replace('_', ' ')}: {one.created} created, {one.changed} changed, "
            f"{one.unchanged} unchanged"
            for kind, one in self.counts.items()
        ]
        return "; ".join((*shown, f"{self.not_honoured_count} not honoured"))


class ParameterInfo(msgspec.Struct, frozen=True):
    """A runtime parameter of a vhost."""

    vhost: str
    component: str
    name: str
    value: Any


class GlobalParameterInfo(msgspec.Struct, frozen=True):
    """A global runtime parameter."""

    name: str
    value: Any
