"""`warren queues`."""

from __future__ import annotations

import json as json_codec
from typing import Annotated, Any

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.long_command import LongCall, long_command
from warren.cli.requests import RequestGroup
from warren.cli.target import Json, Queue, Uri, address_of, connect, shovel_uri
from warren.errors import NotFound, UsageError
from warren_wire.admin import queues as m
from warren_wire.admin.delayed import EndDelayRequest, ListDelayedRequest
from warren_wire.admin.queues import QueueInfo
from warren_wire.admin.requests import columns_of

Count = Annotated[int, typer.Option("--count", help="at most 500")]
queues = RequestGroup(
    no_args_is_help=True, help="List, show, declare, delete, purge queues, move messages."
)


@queues.command("list")
def list_queues(uri: Uri = None, json: Json = False) -> None:
    """List all queues of the vhost."""
    with connect(uri) as connection:
        found = Admin(connection).queues.list()
    output.listing(found, json, columns_of(QueueInfo))


def _show(found: QueueInfo) -> None:
    values: dict[str, Any] = {name: getattr(found, name) for name in found.__struct_fields__}
    del values["readers"], values["relays"]
    output.facts(found.name, values)
    if found.readers:
        output.table(
            "claim readers",
            ("reader", "epoch", "settled", "open"),
            [
                (reader.name, reader.epoch, reader.settled, reader.open_claims)
                for reader in found.readers
            ],
        )
    if found.relays:
        output.table(
            "relays",
            ("relay", "messages", "connected"),
            [
                (relay.name, relay.messages, "no" if relay.away_since else "yes")
                for relay in found.relays
            ],
        )


queues.shows("show", m.GetQueueRequest, _show, text="Show all properties and counts of one queue.")


@queues.command()
def declare(
    queue: Queue,
    uri: Uri = None,
    argument: Annotated[
        list[str] | None,
        typer.Option("--argument", "-a", help="x-name=value; the value as JSON, else as text"),
    ] = None,
    transient: Annotated[
        bool, typer.Option("--transient", help="lost when the node stops")
    ] = False,
) -> None:
    """Declare a queue, which may exist with the same settings."""
    arguments = dict(_argument(text) for text in argument or ())
    with connect(uri) as connection:
        made = Admin(connection).queues.declare(queue, durable=not transient, arguments=arguments)
    output.say(f"{made.name}: {made.type} on {', '.join(made.replicas)}")


def _deleted(queue: str, force: bool, answer: int, **_: object) -> str:
    done = " with its messages" if force else f": {answer:,} ready messages deleted"
    return f"deleted {queue}{done}"


queues.does("delete", m.DeleteQueueRequest, _deleted)
queues.does("purge", m.PurgeQueueRequest, "purged {queue}: {answer:,} messages")


@long_command(queues)
def move(
    queue: Queue,
    to: Annotated[str, typer.Argument(help="the queue of the same vhost that gets them")],
    call: LongCall,
) -> None:
    """Move what is in a queue now to another one, by a shovel as this user, which then ends."""
    uri = shovel_uri(address_of(call.uri))
    left: int | None
    with call.begin(f"moving messages from {queue} to {to}") as admin:
        dropped = -admin.queues.get(to).duplicates_dropped
        shovel = admin.shovels.move_messages(queue, to, uri)
        try:
            left = admin.queues.get(queue).messages_ready
        except NotFound:
            left = None
        dropped += admin.queues.get(to).duplicates_dropped
    if call.json:
        ended = {"shovel": shovel, "ended": call.waits, "left": left}
        output.as_json({**ended, "duplicates_dropped": dropped})
    elif left is None:
        output.say(f"{queue}: moved to {to}, and deleted with its last consumer")
    elif call.waits:
        output.say(f"{queue}: moved to {to}; {left:,} ready messages came since")
    else:
        output.say(f"{queue} is moved to {to}; `warren shovel status` shows the progress")
    if dropped > 0 and not call.json:
        output.say(f"{to} has dropped {dropped:,} messages meanwhile, of which it knows the ids")


@queues.command("retry-delayed")
def retry_delayed(
    queue: Queue,
    uri: Uri = None,
    message: Annotated[str, typer.Option("--id", help="only this one")] = "",
) -> None:
    """Return a queue's delayed messages to it now, without waiting for their time."""
    with connect(uri) as connection:
        if message:
            Admin(connection).delayed.end(queue, message, drop=False)
            output.say(f"{queue}: delayed message {message} is ready")
            return
        count = Admin(connection).delayed.retry(queue)
    output.say(f"{queue}: {count:,} delayed messages are ready")


queues.lists("delayed", ListDelayedRequest, takes={"count": (Count, 100)})
queues.does(
    "drop-delayed",
    EndDelayRequest,
    "{queue}: dropped delayed message {message}",
    text="Drop one delayed message, by the id that `warren queues delayed` shows.",
    drop=True,
)


def _argument(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"argument {text!r}: write name=value")
    try:
        return name, json_codec.loads(value)
    except ValueError:
        return name, value
