"""`warren sinks`: what queues remember of the sinks that publish into them."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import Json, Queue, Uri, connect
from warren.errors import NotFound, UsageError
from warren_broker.management.queue_values import SinkInfo, SinksInfo

sinks = typer.Typer(no_args_is_help=True, help="Show the sinks that publish into a queue.")

Count = Annotated[int, typer.Option("--count", help="runs, at most 500, that published last")]


@sinks.command("list")
def list_sinks(queue: Queue, count: Count = 100, uri: Uri = None, json: Json = False) -> None:
    """List the runs of sinks: a run is a Spark query's id, unless its options say otherwise."""
    with connect(uri) as connection:
        found = Admin(connection).sinks(queue, count=count)
    columns: dict[str, output.Column] = {
        "sink": "sink",
        "run": "run",
        "epoch": "epoch",
        "last batch": _last_batch,
        "staged": "messages_staged",
    }
    _listing(found, json, columns)


@sinks.command()
def show(
    queue: Queue,
    sink: Annotated[str, typer.Argument(help="the sink's name, as `warren sinks list` shows it")],
    run: Annotated[str, typer.Option("--run", help="only this run")] = "",
    count: Count = 20,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Show a sink's runs with the batches that the queue would recognise a repeat of."""
    if not sink:
        raise UsageError("the sink's name is empty; `warren sinks list` shows all of a queue")
    with connect(uri) as connection:
        found = Admin(connection).sinks(queue, sink, run, count)
    if not found.total:
        named = f"sink {sink!r}" + (f" with run {run!r}" if run else "")
        raise NotFound(f"queue {queue!r} knows no {named}; see `warren sinks list {queue}`")
    columns: dict[str, output.Column] = {
        "run": "run",
        "epoch": "epoch",
        "last batch": _last_batch,
        "batch: messages": lambda each: dict(each.batches),
        "stages": "stages",
        "staged": "messages_staged",
    }
    _listing(found, json, columns)


def _listing(found: SinksInfo, json: bool, columns: dict[str, output.Column]) -> None:
    output.listing(found.runs, json, columns)
    if found.total > len(found.runs):
        output.note(f"{found.total - len(found.runs):,} more runs of {found.total:,}: see --count")


def _last_batch(each: SinkInfo) -> object:
    return "–" if each.last_batch < 0 else each.last_batch
