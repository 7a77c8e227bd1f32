"""`warren federation`: states of the links of federated queues and exchanges."""

from __future__ import annotations

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.permissions import MaybeVhost
from warren.cli.shovels import held_up
from warren.cli.target import Json, Uri, connect

federation = typer.Typer(
    no_args_is_help=True,
    help="Federated queues, exchanges: `warren parameters set federation-upstream` and policies.",
)


@federation.callback()
def _group() -> None:
    """Keep `status` a command of its own."""


@federation.command()
def status(vhost: MaybeVhost = None, uri: Uri = None, json: Json = False) -> None:
    """Show every link: where it runs, its state, the last error, messages fetched."""
    with connect(uri) as connection:
        found = Admin(connection).federation.links(vhost)
    columns: dict[str, output.Column] = {
        "vhost": "vhost",
        "name": lambda one: one.dest_queue or f"exchange {one.dest_exchange}",
        "upstream": "name",
        "node": "node",
        "state": "state",
        "from": lambda one: f"{one.src_uri} {one.src_exchange or one.src_queue}",
        "fetched": "forwarded",
        "reason": lambda one: one.reason or held_up(one.blocked_status),
    }
    output.listing(found, json, columns)
