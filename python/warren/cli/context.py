"""`warren context`: names of clusters, so that no URI is typed twice."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import msgspec
import typer

from warren.cli import output
from warren.cli.kept_contexts import complete_context, keep_contexts, kept_contexts, uri_of
from warren.cli.passwords import asked_password
from warren.cli.target import TIMEOUT_S, Json
from warren.errors import UsageError
from warren.uri import parse_uri

context = typer.Typer(
    no_args_is_help=True, help="Names of clusters, for --context: no URI is typed twice."
)
Name = Annotated[str, typer.Argument(help="the name", autocompletion=complete_context)]


@context.command()
def add(
    name: Name,
    uri: Annotated[str, typer.Argument(help="amqp://user:password@host:port,host:port/vhost")],
    ask_password: Annotated[
        bool,
        typer.Option(
            "--ask-password",
            help="at the terminal, or a line of standard input: others on this machine can see "
            "what a command line has",
        ),
    ] = False,
) -> None:
    """Add a name, or change what it stands for; the first one is in use.

    The password is kept in a file that only this user may read, and is never shown.
    """
    if "://" in name or not name:
        raise UsageError(f"name {name!r}: choose a word, which is no URI")
    address = parse_uri(uri, request_timeout_s=TIMEOUT_S)
    if ask_password:
        address = replace(address, password=asked_password(address.user, None, twice=False))
    known = kept_contexts()
    kept = msgspec.structs.replace(
        known, used=known.used or name, uris={**known.uris, name: address.uri()}
    )
    keep_contexts(kept)
    output.say(f"context {name}: {address}")


@context.command("list")
def list_contexts(json: Json = False) -> None:
    """List the names, and what they stand for without passwords."""
    known = kept_contexts()
    rows = [
        {"name": name, "uri": str(parse_uri(uri)), "in_use": name == known.used}
        for name, uri in sorted(known.uris.items())
    ]
    if json:
        output.as_json(rows)
    else:
        output.table("", ("name", "uri", "in_use"), [list(row.values()) for row in rows])


@context.command()
def use(name: Name) -> None:
    """Use a name where a command has no --uri, outside of a local cluster's directory."""
    uri_of(name)
    keep_contexts(msgspec.structs.replace(kept_contexts(), used=name))
    output.say(f"context {name} is in use")


@context.command()
def remove(name: Name) -> None:
    """Remove a name; if it was in use, none is."""
    uri_of(name)
    known = kept_contexts()
    left = {one: uri for one, uri in known.uris.items() if one != name}
    keep_contexts(msgspec.structs.replace(known, used=known.used * (known.used != name), uris=left))
    output.say(f"context {name} removed")
