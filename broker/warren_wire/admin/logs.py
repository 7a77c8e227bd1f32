"""The nodes' logs: their latest lines, and the lowest level of the lines of each category."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from warren_wire.admin.requests import AdminRequest, Result, Text, route, seen

LATEST_LINES_MAX: Final = 1_000
Category: TypeAlias = Literal[
    "default",
    "connection",
    "tokens",
    "queue",
    "membership",
    "raft",
    "admin",
    "http",
    "shovel",
    "federation",
]
"""default: every line that is of no other category, or of one with the level `default`."""
CategoryLevel: TypeAlias = Literal["debug", "info", "warning", "error", "critical", "default"]
"""default: that of the category default."""


class LogLevelInfo(msgspec.Struct, frozen=True):
    """The lowest level of lines of a category that a node writes."""

    node: Annotated[str, seen(column=True)]
    category: Annotated[str, seen(column=True)]
    level: Annotated[str, seen(column=True)]


class LoggedLine(msgspec.Struct, frozen=True):
    """A line of a node's log.

    number  microseconds since the epoch by the node's clock
    event   the constant words of its text; fields: what stands between them, by the word before it
    """

    number: int
    at: Annotated[str, seen(column=True)]
    node: Annotated[str, seen(column=True)]
    level: Annotated[str, seen(column=True)]
    logger: Annotated[str, seen(column=True)]
    text: Annotated[str, seen(column=True)]
    event: str
    fields: dict[str, Any]


class LogLines(Result, frozen=True):
    """Lines, the newest last; missing: nodes of the cluster that did not answer."""

    lines: tuple[LoggedLine, ...]
    missing: tuple[str, ...] = ()


class ListLogLevelsRequest(AdminRequest[list[LogLevelInfo]], frozen=True):
    """Return the level of each category, of all nodes within reach. Answer: Listed (LogLevelInfo).

    node  of that node only; "": of all
    """

    ROUTES: ClassVar = (route("GET /log/levels", "monitoring", http=True),)
    node: Text = ""


class SetLogLevelRequest(AdminRequest[list[LogLevelInfo]], frozen=True):
    """Change a category's level until the node restarts. Answer: Listed (LogLevelInfo).

    category  default, connection, tokens, queue, membership, raft, admin, http, shovel, federation
    level     debug, info, warning, error, critical; default: that of the category default
    node      of that node only; "": of all within reach
    """

    ROUTES: ClassVar = (
        route("PUT /log/levels/:category", "administrator", http=True, status=200, shows=True),
    )
    category: Category
    level: CategoryLevel
    node: Text = ""


class ListLogLinesRequest(AdminRequest[LogLines], frozen=True):
    """Return the latest lines of the logs of all nodes within reach. Answer: LogLines.

    A node keeps LATEST_LINES_MAX of them.

    count     of lines at most
    node      of that node only; "": of all
    contains  a text that is in the line; "": any
    level     at least; "": any
    """

    ROUTES: ClassVar = (route("GET /log/lines", "administrator", http=True),)
    count: Annotated[int, msgspec.Meta(ge=1, le=LATEST_LINES_MAX)] = 100
    node: Text = ""
    contains: Text = ""
    level: Literal["", "debug", "info", "warning", "error", "critical"] = ""
