"""`warren exchanges` and `warren bindings`."""

from __future__ import annotations

import json as json_codec
from typing import Annotated, Any

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.requests import RequestGroup, json_option
from warren.cli.target import Uri, connect
from warren_wire.admin import exchanges as m

exchanges = RequestGroup(no_args_is_help=True, help="List, declare, delete exchanges.")
exchanges.lists("list", m.ListExchangesRequest)
exchanges.does("declare", m.DeclareExchangeRequest, "exchange {exchange} exists")
exchanges.does("delete", m.DeleteExchangeRequest, "exchange {exchange} deleted")

bindings = RequestGroup(no_args_is_help=True, help="List, add, remove bindings of exchanges.")
Source = Annotated[str, typer.Argument(help="the exchange that messages come from")]
Destination = Annotated[str, typer.Argument(help="the queue that they are routed to")]
ToExchange = Annotated[bool, typer.Option("--to-exchange", help="the destination is an exchange")]
Key = Annotated[str, typer.Option("--key", help="the routing key, or pattern")]
Arguments = Annotated[
    Any, json_option("--arguments", "arguments", "a JSON object")[0].__metadata__[0]
]
_SHOWN: dict[str, output.Column] = {
    "source": lambda one: one["source"] or "(default)",
    "destination": lambda one: one.get("destination_queue", one.get("destination_exchange")),
    "kind": lambda one: "queue" if "destination_queue" in one else "exchange",
    "key": lambda one: one["binding_key"],
    "arguments": lambda one: json_codec.dumps(one["arguments"], ensure_ascii=False),
}
bindings.shows(
    "list",
    m.ListBindingsRequest,
    lambda found: output.listing(found, False, _SHOWN),
    text="List the bindings of the vhost, or those that match.",
    options=("src", "dstq", "dste", "key"),
)


def _ends(source: str, destination: str, to_exchange: bool) -> tuple[str, str, str]:
    return (source, "", destination) if to_exchange else (source, destination, "")


@bindings.command()
def add(
    source: Source,
    destination: Destination,
    key: Key = "",
    to_exchange: ToExchange = False,
    arguments: Arguments = "{}",
    uri: Uri = None,
) -> None:
    """Bind a queue, or an exchange, to an exchange; harmless when it is bound."""
    with connect(uri) as connection:
        ends = _ends(source, destination, to_exchange)
        Admin(connection).bindings.put(*ends, key, arguments)
    output.say(f"{destination} is bound to {source} with key {key!r}")


@bindings.command()
def remove(
    source: Source,
    destination: Destination,
    key: Key = "",
    to_exchange: ToExchange = False,
    arguments: Arguments = "{}",
    uri: Uri = None,
) -> None:
    """Remove a binding, with the arguments that it has; harmless when there is none."""
    with connect(uri) as connection:
        ends = _ends(source, destination, to_exchange)
        Admin(connection).bindings.delete(*ends, key, arguments)
    output.say(f"{destination} is not bound to {source} with key {key!r}")
