"""`warren claims`: the claims of Spark readers."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.admin import Reader as ClaimReader
from warren.cli import output
from warren.cli.target import Json, Queue, Uri, connect

claims = typer.Typer(no_args_is_help=True, help="List, settle and release claims of readers.")

Reader = Annotated[str, typer.Argument(help="the reader's name, as `warren claims list` shows it")]


@claims.command("list")
def list_claims(queue: Queue, uri: Uri = None, json: Json = False) -> None:
    """List the readers of a queue with their open claims."""
    with connect(uri) as connection:
        found = Admin(connection).claims.readers(queue)
    columns: dict[str, output.Column] = {
        "reader": "name",
        "epoch": "epoch",
        "settled": "settled",
        "open claims": _open_claims,
        "settled by": _settled_by,
        "read by": _read_by,
        "in parts": "in_parts",
        "last heard": _last_heard,
        "forgotten": output.until("expires_at", "expires_in_ms"),
    }
    output.listing(found, json, columns)


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


@claims.command()
def settle(
    queue: Queue,
    reader: Reader,
    number: Annotated[int, typer.Argument(help="claims up to this one are settled")],
    uri: Uri = None,
) -> None:
    """Settle a reader's claims: their batches were committed, but its driver cannot settle them."""
    with connect(uri) as connection:
        count = Admin(connection).claims.settle(queue, reader, number)
    output.say(f"settled {count:,} messages of {reader}")


@claims.command()
def release(
    queue: Queue,
    reader: Reader,
    number: Annotated[
        int, typer.Option(help="this claim; without it: all, and forget the reader")
    ] = 0,
    failed: Annotated[bool, typer.Option("--failed", help="count it as a failed delivery")] = False,
    undecided: Annotated[
        bool,
        typer.Option(
            "--undecided",
            help="even if it is not known whether the batch that settles it is published",
        ),
    ] = False,
    uri: Uri = None,
) -> None:
    """Release claims to the queue. A driver that continues is told that its claim was lost."""
    with connect(uri) as connection:
        count = Admin(connection).claims.release(
            queue, reader, number, failed=failed, undecided=undecided
        )
    output.say(f"released {count:,} messages of {reader}")
