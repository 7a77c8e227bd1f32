"""`warren audit`: administrative changes, logins, refusals."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import following, output
from warren.cli.target import Follow, Json, Uri, connect
from warren_wire.admin.audit import AuditRecord, ListAuditRequest
from warren_wire.admin.requests import columns_of, texts_of

_TEXTS = texts_of(ListAuditRequest)


def audit(
    kind: Annotated[str, typer.Option(help=_TEXTS["kind"])] = "",
    user: Annotated[str, typer.Option(help=_TEXTS["user"])] = "",
    node: Annotated[str, typer.Option(help=_TEXTS["node"])] = "",
    contains: Annotated[str, typer.Option(help=_TEXTS["contains"])] = "",
    hours: Annotated[float, typer.Option(min=0, help="of the last hours only; 0: of all")] = 0.0,
    limit: Annotated[int, typer.Option(min=0, help="records at most; 0: all")] = 50,
    follow: Follow = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Show administrative changes, logins and refusals of all nodes, the newest first.

    With --jsonl each has its old and new value. With --follow the newest is the last, and later
    ones are shown as they come.
    """
    since = int(time.time() - 3600 * hours) if hours else 0
    asked = {"kind": kind, "user": user, "node": node, "contains": contains, "since": since}
    if follow:
        request = ListAuditRequest(**asked)  # type: ignore[arg-type]
        show = output.as_json_line if json else _say
        following.follow(uri, following.AuditLook(request, limit), show)
        return
    with connect(uri) as connection:
        found = list(Admin(connection).audit.records(limit=limit, **asked))
    output.listing(found, json, columns_of(AuditRecord))


def _say(one: AuditRecord) -> None:
    target = " ".join(f"{key}={value}" for key, value in one.target.items())
    said = (one.at, one.node, one.kind, one.user, one.door, one.action, target, one.outcome)
    output.say(" ".join(text for text in (*said, one.detail) if text))
