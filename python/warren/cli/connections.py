"""`warren connections`: clients' connections to all nodes, shown and closed."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import Json, Uri, connect

connections = typer.Typer(no_args_is_help=True, help="Clients' connections to all nodes.")
Name = Annotated[str, typer.Argument(help="as `list` shows it: CLIENT -> NODE, each with its port")]


@connections.command("list")
def list_connections(
    vhost: Annotated[str, typer.Option(help="only this vhost's")] = "",
    user: Annotated[str, typer.Option(help="only this user's")] = "",
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Show connections: their user, vhost, node and protocol; without `monitoring` one's own."""
    with connect(uri) as connection:
        found = Admin(connection).connections.list(vhost=vhost, user=user)
    columns: dict[str, output.Column] = {
        "name": "name",
        "node": "node",
        "user": "user",
        "vhost": "vhost",
        "protocol": "protocol",
        "channels": "channels",
        "client": lambda one: one.user_provided_name or one.client_properties.get("product", ""),
    }
    output.listing(found, json, columns)


@connections.command()
def close(
    name: Name,
    reason: Annotated[str, typer.Option(help="that the client is told")] = "",
    uri: Uri = None,
) -> None:
    """Close one; its client is told the reason, and may connect again."""
    with connect(uri) as connection:
        Admin(connection).connections.close(name, reason)
    output.say(f"connection {name} is closed")
