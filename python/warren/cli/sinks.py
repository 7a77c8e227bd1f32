"""`warren sinks`: what queues remember of the sinks that publish into them."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import Json, Queue, Uri, connect
from warren.errors import NotFound, UsageError
from warren_wire.admin.queues import SinkInfo, SinksInfo

sinks = typer.Typer(no_args_is_help=True, help="Show or forget sinks that publish into a queue.")

Count = Annotated[int, typer.Option("--count", help="runs, at most 500, that published last")]

Sink = Annotated[str, typer.Argument(help="the sink's name, as `warren sinks list` shows it")]


@sinks.command("list")
def list_sinks(queue: Queue, count: Count = 100, uri: Uri = None, json: Json = False) -> None:
    """List the runs of sinks: a run is a Spark query's id, unless its options say otherwise."""
    with connect(uri) as connection:
        found = Admin(connection).sinks.list(queue, count=count)
    columns: dict[str, output.Column] = {
        "sink": "sink",
        "run": "run",
        "epoch": "epoch",
        "last batch": _last_batch,
        "staged": "messages_staged",
        "forgotten": output.until("expires_at", "expires_in_ms"),
    }
    _listing(found, json, columns)


@sinks.command()
def show(
    queue: Queue,
    sink: Sink,
    run: Annotated[str, typer.Option("--run", help="only this run")] = "",
    count: Count = 20,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Show a sink's runs with the batches that the queue would recognise a repeat of."""
    _named(sink)
    with connect(uri) as connection:
        found = Admin(connection).sinks.list(queue, sink, run, count)
    if not found.total:
        raise _unknown(queue, sink, run)
    columns: dict[str, output.Column] = {
        "run": "run",
        "epoch": "epoch",
        "last batch": _last_batch,
        "batch: messages": lambda each: dict(each.batches),
        "stages": "stages",
        "staged": "messages_staged",
    }
    _listing(found, json, columns)


@sinks.command()
def forget(
    queue: Queue,
    sink: Sink,
    run: Annotated[str, typer.Option("--run", help="only this run")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="even while a batch is staged: its stages are dropped")
    ] = False,
    uri: Uri = None,
) -> None:
    """Forget a sink that will not come back: a batch of it that comes again is published again."""
    _named(sink)
    with connect(uri) as connection:
        gone = Admin(connection).sinks.forget(queue, sink, run, force=force)
    if not gone.runs:
        raise _unknown(queue, sink, run)
    dropped = f"; {gone.messages_staged:,} staged messages dropped" if gone.messages_staged else ""
    output.say(f"forgot {gone.runs:,} runs of {sink}{dropped}")


def _named(sink: str) -> None:
    if not sink:
        raise UsageError("the sink's name is empty; `warren sinks list` shows all of a queue")


def _unknown(queue: str, sink: str, run: str) -> NotFound:
    named = f"sink {sink!r}" + (f" with run {run!r}" if run else "")
    return NotFound(f"queue {queue!r} knows no {named}; see `warren sinks list {queue}`")


def _listing(found: SinksInfo, json: bool, columns: dict[str, output.Column]) -> None:
    output.listing(found.runs, json, columns)
    if found.total > len(found.runs):
        output.note(f"{found.total - len(found.runs):,} more runs of {found.total:,}: see --count")


def _last_batch(each: SinkInfo) -> object:
    return "–" if each.last_batch < 0 else each.last_batch
