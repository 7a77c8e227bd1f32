"""Definitions, the report of an import of them, and the requests for them.

A file of definitions is JSON, compressed by zlib: an answer has few parts, and a request few bytes.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

from warren_wire.admin.requests import AdminRequest, route

PACKED_BYTES_MAX: Final = 64 << 20
"""Of a file as it comes; one request over 1.0 has less (`ConnectionConfig.request_bytes_max`)."""


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


class ExportedFile(msgspec.Struct, frozen=True):
    """A file, compressed, and a note for every object that is not in it as it is."""

    document: bytes
    notes: tuple[str, ...]


class ExportRequest(AdminRequest[ExportedFile], frozen=True):
    """Return all definitions, or those of one vhost; 404 without it. Answer: ExportedFile."""

    ROUTES: ClassVar = (
        route("GET /definitions/:vhost", "administrator"),
        route("GET /definitions", "administrator"),
    )
    vhost: str | None = None


class ImportRequest(AdminRequest[ImportReport], frozen=True, rename={"dry_run": "dry-run"}):
    """Import a file, all of it or, when that is refused, nothing. Answer: ImportReport.

    packed   the file, compressed
    vhost    that everything is imported into; None: the vhosts that the file names
    dry_run  only report what would be done
    """

    ROUTES: ClassVar = (
        route(
            "POST /definitions/:vhost",
            "administrator",
            bytes_max=PACKED_BYTES_MAX,
            whole="packed",
        ),
        route("POST /definitions", "administrator", bytes_max=PACKED_BYTES_MAX, whole="packed"),
    )
    packed: Any
    vhost: str | None = None
    dry_run: bool = False

    def changes(self) -> bool:
        """See the base class."""
        return not self.dry_run

    def __repr__(self) -> str:
        return f"ImportRequest(vhost={self.vhost!r}, dry_run={self.dry_run!r})"
