"""`warren logs`: the nodes' logs, and which lines they have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from warren.admin import Admin
from warren.cli import following, output
from warren.cli.requests import RequestGroup
from warren.cli.target import Follow, Json, Uri, connect
from warren_wire.admin.logs import (
    ListLogLevelsRequest,
    ListLogLinesRequest,
    LoggedLine,
    SetLogLevelRequest,
)
from warren_wire.admin.requests import texts_of

logs = RequestGroup(no_args_is_help=True, help="The nodes' logs: lines, and levels by category.")
logs.lists("levels", ListLogLevelsRequest, options=("node",))
logs.does(
    "set-level",
    SetLogLevelRequest,
    "category {category}: {level}, until the nodes restart",
    text="Change the lowest level of a category's lines, on all nodes or one, until they restart.",
)
_TEXTS = texts_of(ListLogLinesRequest)


@logs.command()
def tail(
    count: Annotated[int, typer.Option(help=_TEXTS["count"])] = 50,
    node: Annotated[str, typer.Option(help=_TEXTS["node"])] = "",
    contains: Annotated[str, typer.Option(help=_TEXTS["contains"])] = "",
    level: Annotated[str, typer.Option(help=_TEXTS["level"])] = "",
    follow: Follow = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Show the latest lines of all nodes' logs, by their time; with --jsonl event and fields."""
    asked: Any = {"count": count, "node": node, "contains": contains, "level": level}
    if follow:
        look = following.LogLook(ListLogLinesRequest(**asked))
        following.follow(uri, look, output.as_json_line if json else _say)
        return
    with connect(uri) as connection:
        found = Admin(connection).logs.lines(**asked)
    if json:
        output.as_json(found.lines)
    else:
        for one in found.lines:
            _say(one)
    if found.missing:
        output.note(f"no answer from {', '.join(found.missing)}")


def _say(one: LoggedLine) -> None:
    output.say(f"{one.at} {one.node} {one.level.upper()} {one.logger}: {one.text}")
