"""`warren connections`, `channels` and `consumers`: clients of all nodes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.requests import RequestGroup
from warren.cli.target import Json, Uri, connect
from warren_wire.admin.connections import (
    ChannelInfo,
    EndConnectionRequest,
    ListConnectionsRequest,
    ListConsumersRequest,
)

connections = RequestGroup(no_args_is_help=True, help="Clients' connections to all nodes.")
_SHOWN: dict[str, output.Column] = {
    **{each: each for each in ("name", "node", "user", "vhost", "protocol", "channels")},
    "client": lambda one: one.user_provided_name or one.client_properties.get("product", ""),
}

connections.lists("list", ListConnectionsRequest, columns=_SHOWN, options=("vhost", "user"))
connections.does("close", EndConnectionRequest, "connection {connection} is closed")

consumers = RequestGroup(no_args_is_help=True, help="Clients' consumers on all nodes.")
consumers.lists(
    "list",
    ListConsumersRequest,
    columns={
        **{each: each for each in ("queue", "vhost", "consumer_tag", "user", "connection")},
        **{each: each for each in ("channel", "prefetch_count", "ack_required", "node")},
        "activity": "activity_status",
    },
    options=("vhost", "queue"),
)

channels = RequestGroup(no_args_is_help=True, help="Open channels of AMQP 0.9.1 on all nodes.")


class ListedChannel(ChannelInfo, frozen=True, kw_only=True):
    """A channel, with its connection and user."""

    connection: str
    node: str
    user: str
    vhost: str


_OF_CHANNEL = (
    *("connection", "number", "user", "vhost", "prefetch_count", "messages_unacknowledged"),
    *("messages_unconfirmed", "confirm", "transactional", "published", "node"),
)


@channels.command("list")
def list_channels(
    vhost: Annotated[str, typer.Option("--vhost", "-p", help="of that vhost only")] = "",
    user: Annotated[str, typer.Option(help="of that user only")] = "",
    connection: Annotated[str, typer.Option(help="of that connection only")] = "",
    uri: Uri = None,
    json: Json = False,
) -> None:
    """List open channels by their connections, with what is unacknowledged and unconfirmed."""
    with connect(uri) as made:
        found = Admin(made).connections.list(vhost, user, connection, channels=True)
    listed = [_listed(one, channel) for one in found for channel in one.open_channels]
    output.listing(listed, json, _OF_CHANNEL)


def _listed(owner: Any, channel: ChannelInfo) -> ListedChannel:
    whose = {key: getattr(owner, key) for key in ("node", "user", "vhost")}
    return ListedChannel(**msgspec.structs.asdict(channel), connection=owner.name, **whose)
