"""`warren claims`: the claims of Spark readers."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Reader as ClaimReader
from warren.cli import output
from warren.cli.requests import RequestGroup
from warren_wire.admin.claims import ReleaseClaimRequest, SettleClaimsRequest
from warren_wire.admin.queues import GetQueueRequest

claims = RequestGroup(no_args_is_help=True, help="List, settle and release claims of readers.")

Number = Annotated[int, typer.Option(help="this claim; without it: all, and forget the reader")]


def _open_claims(reader: ClaimReader) -> str:
    numbers = range(reader.settled + 1, reader.settled + 1 + reader.open_claims)
    return ", ".join(map(str, numbers)) or "–"


def _last_heard(reader: ClaimReader) -> str:
    ago_ms = reader.heard_ago_ms
    return output.NOT_SAID if ago_ms is None else f"{output.seconds(ago_ms)} ago"


def _settled_by(reader: ClaimReader) -> str:
    """Name the batches that decide about open claims."""
    said = (
        f"{of.number}: batch {of.batch} of {of.sink} (run {of.run}) in {of.queue}"
        for of in reader.bound
    )
    return ", ".join(said) or "–"


def _read_by(reader: ClaimReader) -> str:
    """Name the query and the batch that have begun to read a claim last."""
    of = reader.read_by
    if of is None:
        return "–"
    query = f"{of.name} ({of.query})" if of.name else of.query
    return f"{of.number}: batch {of.batch} of {query}"


claims.lists(
    "list",
    GetQueueRequest,
    text="List the readers of a queue with their open claims.",
    part="readers",
    columns={
        "reader": "name",
        "epoch": "epoch",
        "settled": "settled",
        "open claims": _open_claims,
        "settled by": _settled_by,
        "read by": _read_by,
        "in parts": "in_parts",
        "last heard": _last_heard,
        "forgotten": output.until("expires_at", "expires_in_ms"),
    },
)


claims.does(
    "settle",
    SettleClaimsRequest,
    "settled {answer:,} messages of {reader}",
    text="Settle a reader's claims, the batches of which were committed without their driver.",
    epoch=-1,
)
claims.does(
    "release",
    ReleaseClaimRequest,
    "released {answer:,} messages of {reader}",
    takes={"number": (Number, 0)},
    epoch=-1,
)
