"""`warren shovel`: states of shovels, restart, pause, removal."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.permissions import MaybeVhost, Vhost
from warren.cli.target import Json, Uri, connect

shovel = typer.Typer(
    no_args_is_help=True,
    help="Shovels, which move messages to another queue or broker; `warren parameters set shovel` "
    "makes one.",
)
Name = Annotated[str, typer.Argument(help="the shovel's name")]


@shovel.command()
def status(vhost: MaybeVhost = None, uri: Uri = None, json: Json = False) -> None:
    """Show every shovel: where it runs, its state, the last error, messages forwarded."""
    with connect(uri) as connection:
        found = Admin(connection).shovels.list(vhost)
    columns: dict[str, output.Column] = {
        "vhost": "vhost",
        "name": "name",
        "node": "node",
        "state": "state",
        "from": lambda one: f"{one.src_uri} {one.src_queue or one.src_exchange or one.src_address}",
        "to": lambda one: (
            f"{one.dest_uri} {one.dest_queue or one.dest_exchange or one.dest_address}"
        ),
        "forwarded": "forwarded",
        "remaining": lambda one: "" if one.remaining is None else one.remaining,
        "reason": lambda one: one.reason or held_up(one.blocked_status),
    }
    output.listing(found, json, columns)


def held_up(blocked_status: str) -> str:
    """Return why the destination takes no messages; "": it does."""
    return {
        "blocked": "the destination accepts no publishes: a resource alarm",
        "refused": "the destination refuses messages; they are published again",
    }.get(blocked_status, "")


@shovel.command()
def restart(name: Name, vhost: Vhost = "/", uri: Uri = None) -> None:
    """Have one connect again, also one that has ended with an error."""
    with connect(uri) as connection:
        Admin(connection).shovels.restart(vhost, name)
    output.say(f"shovel {name} in vhost {vhost} is restarted")


@shovel.command()
def pause(name: Name, vhost: Vhost = "/", uri: Uri = None) -> None:
    """Have one move nothing until it is resumed; what it has not confirmed stays in its source."""
    with connect(uri) as connection:
        Admin(connection).shovels.pause(vhost, name)
    output.say(f"shovel {name} in vhost {vhost} is paused")


@shovel.command()
def resume(name: Name, vhost: Vhost = "/", uri: Uri = None) -> None:
    """Have a paused one run again."""
    with connect(uri) as connection:
        Admin(connection).shovels.pause(vhost, name, False)
    output.say(f"shovel {name} in vhost {vhost} is resumed")


@shovel.command()
def delete(name: Name, vhost: Vhost = "/", uri: Uri = None) -> None:
    """Stop and remove one; what it has not confirmed stays in its source."""
    with connect(uri) as connection:
        Admin(connection).shovels.delete(vhost, name)
    output.say(f"shovel {name} in vhost {vhost} deleted")
