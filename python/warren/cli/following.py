"""`--follow`: what is new since the look before, whichever node restarts meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, TypeVar

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import connect
from warren.errors import NothingListens, Unavailable
from warren_wire.admin.audit import AUDIT_COUNT_MAX, AuditRecord, ListAuditRequest
from warren_wire.admin.logs import LATEST_LINES_MAX, ListLogLinesRequest, LoggedLine

FOLLOW_S: Final = 1.0
"""Seconds between two looks."""
FOLLOWED_PAGES_MAX: Final = 20
"""Pages of the audit log that one look reads."""
SLACK_S: Final = 60
"""By so much the clocks of nodes may differ."""


class Followed(Protocol):
    """What a node numbers: the numbers of a node rise, also over its restart."""

    @property
    def node(self) -> str:
        """The node that says it."""

    @property
    def number(self) -> int:
        """Microseconds since the epoch by that node's clock."""


T = TypeVar("T", bound=Followed)


class Fresh:
    """The highest number of each node that was shown."""

    def __init__(self) -> None:
        self._shown: dict[str, int] = {}

    def of(self, found: Iterable[T]) -> list[T]:
        """Return those that were not shown yet, the oldest first, and note them."""
        new = [one for one in found if one.number > self._shown.get(one.node, 0)]
        new.sort(key=lambda one: one.number)
        for one in new:
            self._shown[one.node] = max(one.number, self._shown.get(one.node, 0))
        return new


class AuditLook:
    """Looks at the audit log: first at its newest records, then at what has come since."""

    def __init__(self, asked: ListAuditRequest, first: int) -> None:
        self._asked = asked
        self._first = first
        self._fresh = Fresh()
        self._since = 0
        self._looked = self.left_out = False

    def __call__(self, admin: Admin) -> list[AuditRecord]:
        """Return new records, the oldest first."""
        self.left_out, asked = False, _fields(self._asked)
        found: list[AuditRecord] = []
        missing = False
        if not self._looked:
            self._looked = True
            found += admin.audit.records(limit=self._first, **asked)
        else:
            asked |= {"since": max(self._asked.since, self._since - SLACK_S), "before": ""}
            for _ in range(FOLLOWED_PAGES_MAX):
                page = admin.audit.page(count=AUDIT_COUNT_MAX, **asked)
                found += page.records
                asked["before"], missing = page.next, missing or bool(page.missing)
                if not page.next:
                    break
            else:
                self.left_out = True
        if found and not missing:
            # What a node has recorded while it was out of reach is asked for when it is back. The
            # time is that of the records: this machine's clock may be another one.
            self._since = max(self._since, max(one.number for one in found) // 1_000_000)
        return self._fresh.of(found)


def _fields(asked: ListAuditRequest) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in ("node", "kind", "user", "contains", "since")}


class LogLook:
    """Looks at the nodes' logs: first at the latest lines, then at what has come since."""

    def __init__(self, asked: ListLogLinesRequest) -> None:
        self._asked = asked
        self._fresh = Fresh()
        self._looked = self.left_out = False

    def __call__(self, admin: Admin) -> list[LoggedLine]:
        """Return new lines, the oldest first."""
        asked = self._asked
        count = LATEST_LINES_MAX if self._looked else asked.count
        lines = admin.logs.lines(
            count=count, node=asked.node, contains=asked.contains, level=asked.level
        ).lines
        new = self._fresh.of(lines)
        self.left_out = self._looked and len(new) == LATEST_LINES_MAX
        self._looked = True
        return new


def follow(uri: str | None, look: Callable[[Admin], list[T]], show: Callable[[T], None]) -> None:
    """Show what each look returns, until Ctrl-C; wait for nodes that do not answer."""
    said = ""
    try:
        while True:
            try:
                with connect(uri) as connection:
                    admin = Admin(connection)
                    while True:
                        for one in look(admin):
                            show(one)
                        if getattr(look, "left_out", False):
                            output.note("more came at once than one look reads: some are left out")
                        said = ""
                        output.flush()
                        time.sleep(FOLLOW_S)
            except (Unavailable, NothingListens) as error:
                if str(error) != said:
                    output.note(f"no node answers, which is waited for: {error}")
                said = str(error)
                time.sleep(FOLLOW_S)
    except KeyboardInterrupt:
        return
