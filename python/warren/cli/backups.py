"""`warren backup`: copies of a running cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from warren.backups import Backup, unreferenced
from warren.cli import output
from warren.cli.progress_line import ProgressLine
from warren.cli.target import Json, Uri, connect
from warren.errors import UsageError
from warren_wire.backups import manifest as m
from warren_wire.backups.check import damages
from warren_wire.backups.store import BackupStore, StoreUnusable, store_of

EXIT_DAMAGED = 1
backup = typer.Typer(
    no_args_is_help=True, help="Back up a running cluster; check, list and prune backups."
)
Place = Annotated[
    str, typer.Argument(help="a directory, or a URL that fsspec knows: s3://bucket/folder")
]
Id = Annotated[str, typer.Option("--id", help="one backup; without it all of them")]


@contextmanager
def _place(where: str) -> Iterator[BackupStore]:
    try:
        yield store_of(where)
    except (StoreUnusable, FileNotFoundError, m.BackupDamaged) as error:
        raise UsageError(str(error)) from error


@backup.command()
def create(
    place: Place,
    uri: Uri = None,
    bytes_per_second: Annotated[
        int, typer.Option(min=0, help="read no more than that from the cluster; 0: no limit")
    ] = 0,
    skip_unreachable: Annotated[
        bool, typer.Option(help="leave out queues of which no member answers, and name them")
    ] = False,
    json: Json = False,
) -> None:
    """Back up a running cluster: its definitions, and all queues that outlive their node."""
    with _place(place) as store, connect(uri) as connection, ProgressLine("backup") as line:
        made = Backup(
            connection,
            store,
            bytes_per_second=bytes_per_second,
            skip_unreachable=skip_unreachable,
            show=line.show,
        )
        manifest = made.run()
    done = made.done
    if json:
        output.as_json({"id": manifest.id, "missing": manifest.missing, "copied": vars(done)})
    else:
        output.say(
            f"backup {manifest.id} of cluster {manifest.cluster}: {len(manifest.groups) - 1:,} "
            f"queues, {done.bytes:,} bytes copied, {done.reused_bytes:,} bytes were there already"
        )
        for vhost, name in manifest.missing:
            output.note(f"not in it, because no member answers: queue {name} of vhost {vhost}")
    if manifest.missing:
        raise typer.Exit(EXIT_DAMAGED)


def _shown(manifest: m.BackupManifest) -> tuple[object, ...]:
    size = sum(file.bytes for file in manifest.files.values())
    return manifest.id, manifest.created, manifest.cluster, len(manifest.groups) - 1, size


@backup.command("list")
def list_(place: Place, json: Json = False) -> None:
    """List the backups in a place, the oldest first."""
    with _place(place) as store:
        rows = [_shown(m.load(store, name)) for name in m.manifests(store)]
    columns = ("id", "created", "cluster", "queues", "bytes")
    if json:
        output.as_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        output.table("", columns, rows)


@backup.command()
def verify(place: Place, id_: Id = "") -> None:
    """Read all files of backups, and compare them with their checksums; 1: one is damaged."""
    with _place(place) as store:
        names = [m.find(store, id_).file()] if id_ else m.manifests(store)
        found: list[m.BackupDamaged] = []
        backups: list[m.BackupManifest] = []
        for name in names:
            try:
                backups.append(m.load(store, name))
            except m.BackupDamaged as damage:
                found.append(damage)
        found += damages(store, backups)
    for each in found:
        output.note(f"damaged: {each}")
    if found:
        raise typer.Exit(EXIT_DAMAGED)
    files = {name for manifest in backups for name in manifest.files}
    output.say(f"{len(backups):,} backups, {len(files):,} files: ok")


@backup.command()
def prune(
    place: Place,
    keep: Annotated[int, typer.Option(min=1, help="keep the newest so many backups")],
) -> None:
    """Remove all but the newest backups, and the files that only those had."""
    with _place(place) as store:
        old = m.manifests(store)[:-keep]
        for name in old:
            store.remove(name)
        files = unreferenced(store)
        for name in files:
            store.remove(name)
    output.say(f"{len(old):,} backups and {len(files):,} files removed")
