"""`warren definitions`: export and import everything that is declared."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import Json, Uri, connect
from warren.errors import UsageError
from warren_wire.admin.definitions import ImportReport
from warren_wire.whole_file import write_whole

STANDARD = "-"

definitions = typer.Typer(
    no_args_is_help=True,
    help="Export and import users, vhosts, policies, exchanges, queues … as RabbitMQ does.",
)

OneVhost = Annotated[
    str | None, typer.Option(help="only that vhost's exchanges, queues, bindings, policies …")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="change nothing, print what an import would do")
]


@definitions.command("export")
def export_definitions(
    file: Annotated[str, typer.Argument(help="where to write the JSON; -: standard output")],
    vhost: OneVhost = None,
    uri: Uri = None,
) -> None:
    """Write the definitions to a file, with the hashes of the users' passwords."""
    with connect(uri) as connection:
        found = Admin(connection).definitions.export(vhost)
    if file == STANDARD:
        sys.stdout.buffer.write(found.data + b"\n")
    else:
        path = Path(file)
        try:
            write_whole(path, found.data + b"\n")
        except OSError as error:
            kept = "; the one that is there is as it was" if path.exists() else ""
            raise UsageError(f"cannot write {file}: {error.strerror}{kept}") from error
        output.note(f"exported to {file}")
    for note in found.notes:
        output.note(note)


@definitions.command("import")
def import_definitions(
    file: Annotated[str, typer.Argument(help="the JSON to read; -: standard input")],
    vhost: OneVhost = None,
    dry_run: DryRun = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Import definitions from a file: all of them or, when that is refused, none."""
    try:
        data = sys.stdin.buffer.read() if file == STANDARD else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from error
    with connect(uri) as connection:
        report = Admin(connection).definitions.load(data, vhost, dry_run=dry_run)
    if json:
        output.as_json(report)
    else:
        _show(report)


def _show(report: ImportReport) -> None:
    if report.dry_run:
        named = (
            ("would be created", report.created),
            ("would be changed", report.changed),
            ("would be left alone", report.unchanged),
        )
        for what, names in named:
            for name in names:
                output.say(f"{what}: {name}")
    rows = [
        (kind.replace("_", " "), one.created, one.changed, one.unchanged)
        for kind, one in report.counts.items()
    ]
    title = "a dry run: nothing was changed" if report.dry_run else "imported"
    output.table(title, ("", "created", "changed", "left alone"), rows)
    if report.not_honoured:
        output.table(
            "not honoured",
            ("object", "key", "reason"),
            [(one.object, one.key, one.reason) for one in report.not_honoured],
        )
    if report.not_honoured_count > len(report.not_honoured):
        output.say(f"({report.not_honoured_count - len(report.not_honoured):,} more are not shown)")
