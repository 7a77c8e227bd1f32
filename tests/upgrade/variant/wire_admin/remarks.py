"""Requests that need version 2."""

from __future__ import annotations

from typing import Any, ClassVar

from warren_wire.admin.requests import AdminRequest, Name, Result, route


class Remarks(Result, frozen=True):
    """What was remarked, in its order."""

    remarks: tuple[str, ...]


class AddRemarkRequest(AdminRequest[None], frozen=True):
    """Add a remark to a queue. Answer: Performed."""

    ROUTES: ClassVar = (route("POST /queues/:queue/remarks"),)
    queue: Name
    text: str


class GetRemarksRequest(AdminRequest[Remarks], frozen=True):
    """Return a queue's remarks, as the answering node's member has them. Answer: Remarks."""

    ROUTES: ClassVar[tuple[Any, ...]] = (route("GET /queues/:queue/remarks"),)
    queue: Name


class AddNoteRequest(AdminRequest[None], frozen=True):
    """Add a note to the definitions. Answer: Performed."""

    ROUTES: ClassVar = (route("POST /notes", "administrator"),)
    text: str


class GetNotesRequest(AdminRequest[Remarks], frozen=True):
    """Return the notes. Answer: Remarks."""

    ROUTES: ClassVar[tuple[Any, ...]] = (route("GET /notes", "management"),)
