"""`warren get` and `warren consume`: take messages of a queue, of any AMQP 0.9.1 broker."""

from __future__ import annotations

import base64
import sys
from typing import Annotated

import typer

from warren.cli import output, streams
from warren.cli.amqp091 import Pika, connect091
from warren.cli.command_line import JSONL, wanted_format
from warren.cli.target import Json, Queue, Uri

SENT_AHEAD = 100
_SHOWN = ("routing_key", "exchange", "redelivered", "bytes", "body")


def get(
    queue: Queue,
    count: Annotated[int, typer.Option(min=1, help="messages at most")] = 1,
    ack: Annotated[
        bool, typer.Option("--ack", help="remove them; else they return to the queue")
    ] = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Take the first messages of a queue, show them, and return or remove them.

    Those that return are marked as redelivered, and count for a delivery limit; `warren browse`
    changes nothing. They are removed when they have been printed.
    """
    with connect091(uri) as connection:
        channel = connection.channel()
        found, last = list[dict[str, object]](), 0
        while len(found) < count:
            method, properties, body = channel.basic_get(queue)
            if method is None:
                break
            found.append(_shown(method, properties, body))
            last = method.delivery_tag
        if json:
            output.as_json(found)
        else:
            output.table("", _SHOWN, [[one[name] for name in _SHOWN] for one in found])
        if not last:
            return
        streams.flush_output()
        if ack:
            channel.basic_ack(last, multiple=True)
        else:
            channel.basic_nack(last, multiple=True, requeue=True)
        output.note(f"{len(found):,} {'removed' if ack else 'returned to the queue'}")


def consume(
    queue: Queue,
    count: Annotated[int, typer.Option(min=0, help="end after as many; 0: never")] = 0,
    idle: Annotated[
        float, typer.Option(min=0, help="end when none has come for as many seconds; 0: never")
    ] = 0.0,
    prefetch: Annotated[int, typer.Option(min=1, max=65_535, help="messages sent ahead")] = (
        SENT_AHEAD
    ),
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Consume a queue, and print each body as a line; with --jsonl the whole message.

    A message is acknowledged when it has been printed; what was sent ahead returns to the queue.
    """
    if json and wanted_format() != JSONL:
        output.note("messages come one by one: they are printed as with --jsonl")
    taken = 0
    with connect091(uri) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=min(prefetch, count or prefetch))
        try:
            for method, properties, body in channel.consume(queue, inactivity_timeout=idle or None):
                if method is None:
                    break
                if json:
                    output.as_json_line(_shown(method, properties, body))
                else:
                    sys.stdout.buffer.write(body + b"\n")
                streams.flush_output()
                channel.basic_ack(method.delivery_tag)
                taken += 1
                if taken == count:
                    break
        except KeyboardInterrupt:
            pass
        channel.cancel()
    output.note(f"{taken:,} consumed")


def _shown(method: Pika, properties: Pika, body: bytes) -> dict[str, object]:
    """Return a message as JSON has it; a body that is no UTF-8 is in Base64."""
    said = {name: value for name, value in vars(properties).items() if value is not None}
    try:
        text, encoding = body.decode(), "utf-8"
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(body).decode(), "base64"
    return {
        "routing_key": method.routing_key,
        "exchange": method.exchange,
        "redelivered": method.redelivered,
        "properties": said,
        "bytes": len(body),
        "encoding": encoding,
        "body": text,
    }
