"""`warren connections`: clients' connections to all nodes, shown and closed."""

from __future__ import annotations

from warren.cli import output
from warren.cli.requests import RequestGroup
from warren_wire.admin.connections import EndConnectionRequest, ListConnectionsRequest

connections = RequestGroup(no_args_is_help=True, help="Clients' connections to all nodes.")
_SHOWN: dict[str, output.Column] = {
    **{each: each for each in ("name", "node", "user", "vhost", "protocol", "channels")},
    "client": lambda one: one.user_provided_name or one.client_properties.get("product", ""),
}

connections.lists("list", ListConnectionsRequest, columns=_SHOWN, options=("vhost", "user"))
connections.does("close", EndConnectionRequest, "connection {connection} is closed")
