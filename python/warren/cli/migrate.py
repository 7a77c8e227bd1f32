"""`warren migrate`: definitions and messages of a RabbitMQ."""

from __future__ import annotations

import json as json_codec
import time
from pathlib import Path
from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.progress_line import ProgressLine
from warren.cli.rabbitmq_source import (
    RabbitSource,
    fetch_definitions,
    fetch_queues,
    parse_definitions,
    parse_source,
)
from warren.cli.target import Json, Uri, address_of, connect, shovel_uri
from warren.errors import Unavailable, UsageError
from warren.migration import (
    AT_ONCE,
    FAILED,
    GIVE_UP_S,
    MOVED,
    MOVES,
    Chosen,
    Counts,
    Migration,
    MigrationPlan,
    SourceQueue,
    choose,
)
from warren_wire.admin.definitions import ImportReport

STEP_S = 0.5

HELD_THERE = "unacknowledged there"
NOT_KNOWN = "?"

From = Annotated[
    str,
    typer.Option(
        "--from",
        envvar="WARREN_MIGRATE_FROM",
        help="amqp://USER:PASSWORD@HOST:PORT/VHOST of the RabbitMQ",
        show_envvar=True,
    ),
]
Management = Annotated[
    str | None,
    typer.Option(help="its HTTP API; without it: http://HOST:15672, with the same user"),
]
Definitions = Annotated[
    Path | None, typer.Option(help="a file of its definitions, instead of the HTTP API")
]
Pattern = Annotated[str, typer.Option("--queues", help="a regular expression of names")]
Prefetch = Annotated[
    int, typer.Option(min=1, max=65_535, help="messages of a queue that are under way at once")
]
AtOnce = Annotated[int, typer.Option(min=1, max=1_000, help="queues at a time")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="change nothing, print what would be done")]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow",
        help="keep moving what is still published at the RabbitMQ, until this is run without it",
    ),
]
GiveUp = Annotated[
    float, typer.Option("--give-up", min=1, help="seconds without progress until a queue fails")
]
Report = Annotated[
    Path | None,
    typer.Option(help="a file that keeps the counts from before, for when this is run again"),
]


def migrate(
    source: From,
    management: Management = None,
    definitions: Definitions = None,
    queues: Pattern = ".*",
    prefetch: Prefetch = 1000,
    at_once: AtOnce = AT_ONCE,
    follow: Follow = False,
    give_up: GiveUp = GIVE_UP_S,
    dry_run: DryRun = False,
    report: Report = None,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Import a RabbitMQ's definitions, and move the messages of its queues.

    It may be run again at any time: it does what is left. Exit code 1: messages are missing, or a
    queue could not be moved.
    """
    came_from = parse_source(source)
    if definitions is None:
        found = fetch_definitions(came_from, management)
    else:
        try:
            found = parse_definitions(definitions.read_bytes(), str(definitions))
        except OSError as error:
            raise UsageError(f"cannot read {definitions}: {error.strerror}") from error
    asked = definitions is None or management is not None
    known = fetch_queues(came_from, management) if asked else None
    chosen = choose(found, came_from.vhost, queues, known)
    address = address_of(uri)
    plan = MigrationPlan(
        source, shovel_uri(address), address.vhost, prefetch, at_once, follow, give_up
    )
    counts = Counts(report, str(came_from))
    counted = RabbitSource(came_from)
    try:
        with connect(uri) as connection:
            admin = Admin(connection)
            imported = admin.definitions.load(
                json_codec.dumps(chosen.document).encode(), address.vhost, dry_run=dry_run
            )
            show_plan(chosen, imported, known, counted if dry_run else None)
            if dry_run:
                return
            migration = Migration(plan, chosen.queues, counted, admin, counts, known)
            _run(migration, give_up)
    finally:
        counted.close()
    _show(migration, json, follow)
    if any(one.state == FAILED or one.short for one in migration.queues):
        raise typer.Exit(output.EXIT_REFUSED)


def show_plan(
    chosen: Chosen,
    imported: ImportReport,
    known: dict[str, SourceQueue] | None,
    counted: RabbitSource | None,
) -> None:
    """Print what an import of the definitions did or would do, and which queues are to move."""
    output.note(f"definitions: {imported.summary()}")
    rows = [(one.object, one.why()) for one in imported.not_honoured]
    rows += list(chosen.left_out)
    for what, why in rows:
        output.note(f"  {what}: {why}")
    if counted is not None:
        listed = [(name, counted.ready(name)) for name in chosen.queues]
        rows_of = [
            (
                name,
                "not there" if count is None else count,
                NOT_KNOWN if known is None or name not in known else known[name].unacknowledged,
            )
            for name, count in listed
        ]
        columns = ("queue", "messages to move", HELD_THERE)
        output.table("a dry run: nothing was changed", columns, rows_of)


def _run(migration: Migration, give_up_s: float) -> None:
    """Migrate; Unavailable: the source or the cluster was out of reach for so long."""
    since: float | None = None
    with ProgressLine("migrating") as progress:
        while True:
            try:
                migration.step()
                since = None
            except Unavailable as error:
                now = time.monotonic()
                since = now if since is None else since
                if now - since > give_up_s:
                    raise
                progress.show(str(error))
            else:
                progress.show(_progress(migration))
            if migration.done:
                return
            time.sleep(STEP_S)


def _progress(migration: Migration) -> str:
    ended = sum(one.state in (MOVED, FAILED) for one in migration.queues)
    left = sum(one.left for one in migration.queues)
    parts = [f"{ended} of {len(migration.queues)} queues, {left:,} messages left in those begun"]
    parts += [f"{one.name}: {one.reason}" for one in migration.queues if one.reason][:1]
    return "; ".join(part for part in parts if part)


def _show(migration: Migration, json: bool, follow: bool) -> None:
    columns: dict[str, output.Column] = {
        "queue": "name",
        "state": lambda one: "follows" if follow and one.state == MOVED else one.state,
        "messages before": "before",
        "arrived": "arrived",
        HELD_THERE: lambda one: NOT_KNOWN if one.held is None else one.held,
        "counts": lambda one: (
            one.reason
            if one.state == FAILED
            else ""
            if one.state == MOVES
            else one.compared or "equal"
        ),
    }
    output.listing(migration.queues, json, columns)
