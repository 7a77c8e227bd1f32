"""`warren vhosts`; the verbs are rabbitmqctl's."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import Json, Uri, connect
from warren_wire.admin.requests import columns_of
from warren_wire.admin.vhosts import VhostInfo

vhosts = typer.Typer(no_args_is_help=True, help="List, add, delete, trace virtual hosts.")
Vhost = Annotated[str, typer.Argument(help="the vhost's name")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]


@vhosts.command("list")
def list_vhosts(uri: Uri = None, json: Json = False) -> None:
    """List the vhosts that the user may use; all of them with the tag `monitoring`."""
    with connect(uri) as connection:
        found = Admin(connection).vhosts.list()
    output.listing(found, json, columns_of(VhostInfo))


@vhosts.command()
def add(
    vhost: Vhost,
    description: Annotated[str | None, typer.Option(help="what it is for")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="may be repeated")] = None,
    default_queue_type: Annotated[
        str | None,
        typer.Option(help="of durable queues that name none: classic, quorum or undefined"),
    ] = None,
    uri: Uri = None,
) -> None:
    """Add a vhost, with all permissions for the user, or change the properties given."""
    with connect(uri) as connection:
        Admin(connection).vhosts.put(
            vhost,
            description=description,
            tags=tag or None,
            default_queue_type=default_queue_type,
        )
    output.say(f"vhost {vhost} exists")


@vhosts.command("trace-on")
def trace_on(vhost: Vhost, uri: Uri = None) -> None:
    """Publish what this node's clients publish and are sent to amq.rabbitmq.trace, too."""
    _trace(vhost, True, uri)


@vhosts.command("trace-off")
def trace_off(vhost: Vhost, uri: Uri = None) -> None:
    """End what trace-on began, on this node."""
    _trace(vhost, False, uri)


def _trace(vhost: str, on: bool, uri: str | None) -> None:
    with connect(uri) as connection:
        Admin(connection).vhosts.trace(vhost, on)
        host, port = connection.node or ("", 0)
    until = " until it is turned off, or the node ends" if on else ""
    output.say(f"vhost {vhost}: tracing is {'on' if on else 'off'} at {host}:{port}{until}")


@vhosts.command()
def protect(vhost: Vhost, uri: Uri = None) -> None:
    """Have a vhost refuse its deletion."""
    with connect(uri) as connection:
        Admin(connection).vhosts.protect(vhost)
    output.say(f"vhost {vhost} is protected from deletion")


@vhosts.command()
def unprotect(vhost: Vhost, uri: Uri = None) -> None:
    """Permit the deletion of a vhost again."""
    with connect(uri) as connection:
        Admin(connection).vhosts.protect(vhost, False)
    output.say(f"vhost {vhost} can be deleted")


@vhosts.command()
def delete(vhost: Vhost, yes: Yes = False, uri: Uri = None) -> None:
    """Delete a vhost with its queues, their messages, exchanges, permissions."""
    if not yes:
        typer.confirm(f"delete vhost {vhost!r} with everything in it?", abort=True, err=True)
    with connect(uri) as connection:
        Admin(connection).vhosts.delete(vhost)
    output.say(f"vhost {vhost} deleted")
