"""`warren relays`: what queues keep for shovels and federation links to other clusters."""

from __future__ import annotations

from typing import Annotated

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.requests import RequestGroup
from warren.cli.target import Queue, Uri, connect
from warren.errors import NotFound
from warren_wire.admin.queues import GetQueueRequest

relays = RequestGroup(
    no_args_is_help=True,
    help="Show or release what a queue keeps for shovels and federation links between Warren's "
    "queues.",
)
Relay = Annotated[str, typer.Argument(help="its name, as `warren relays list` shows it")]


relays.lists(
    "list",
    GetQueueRequest,
    text="List the shovels and links that have messages of the queue, or consume from it.",
    part="relays",
    columns={
        "relay": "name",
        "messages": "messages",
        "connected": lambda one: "no" if one.away_since else "yes",
        "ready again": output.until("ready_again", "ready_in_ms"),
    },
)


@relays.command()
def release(queue: Queue, relay: Relay, uri: Uri = None) -> None:
    """Make ready what is kept for one that does not come back, for any consumer.

    What it had published without a confirm may be at its destination, too: then it is in the world
    twice. Set the shovel or link again, with the same name, to have it moved once.
    """
    with connect(uri) as connection:
        count = Admin(connection).relays.release(queue, relay)
    if not count:
        raise NotFound(
            f"queue {queue!r} keeps nothing for {relay!r}; see `warren relays list {queue}`"
        )
    output.say(f"{count:,} messages of queue {queue} are ready again")
