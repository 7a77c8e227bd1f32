"""`warren vhosts`; the verbs are rabbitmqctl's."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.requests import RequestGroup
from warren.cli.target import Uri, connect
from warren_wire.admin import vhosts as m

vhosts = RequestGroup(no_args_is_help=True, help="List, add, delete, trace virtual hosts.")
Vhost = Annotated[str, typer.Argument(help="the vhost's name")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask")]


vhosts.lists("list", m.ListVhostsRequest)


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
            vhost, description=description, tags=tag or None, default_queue_type=default_queue_type
        )
    output.say(f"vhost {vhost} exists")


vhosts.does(
    "trace-on",
    m.TraceVhostRequest,
    "vhost {vhost}: tracing is on at {node} until it is turned off, or the node ends",
    text="Publish what this node's clients publish and are sent to amq.rabbitmq.trace, too.",
    on=True,
)
vhosts.does(
    "trace-off",
    m.TraceVhostRequest,
    "vhost {vhost}: tracing is off at {node}",
    text="End what trace-on began, on this node.",
    on=False,
)
vhosts.does(
    "protect",
    m.ProtectVhostRequest,
    "vhost {vhost} is protected from deletion",
    text="Have a vhost refuse its deletion.",
    on=True,
)
vhosts.does(
    "unprotect",
    m.ProtectVhostRequest,
    "vhost {vhost} can be deleted",
    text="Permit the deletion of a vhost again.",
    on=False,
)


@vhosts.command()
def delete(vhost: Vhost, yes: Yes = False, uri: Uri = None) -> None:
    """Delete a vhost with its queues, their messages, exchanges, permissions."""
    if not yes:
        typer.confirm(f"delete vhost {vhost!r} with everything in it?", abort=True, err=True)
    with connect(uri) as connection:
        Admin(connection).vhosts.delete(vhost)
    output.say(f"vhost {vhost} deleted")
