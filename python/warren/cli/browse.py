"""`warren browse`: look at the messages of a queue, which stay as they are."""

from __future__ import annotations

import base64
import json as json_codec
import shlex
from typing import Annotated, Any

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.command_line import JSONL, wanted_format
from warren.cli.selecting import selecting
from warren.cli.target import Json, Queue, Uri, connect
from warren.errors import UsageError
from warren_wire.admin.browse import BODY_SHOWN_BYTES, BODY_SHOWN_MAX, BrowsedMessage, BrowseRequest
from warren_wire.admin.requests import columns_of, texts_of

_TEXTS = texts_of(BrowseRequest)
_HEX_WIDTH = 16
_NOT_AGAIN = ("priority", "expiration", "user_id")
"""Properties with an option of their own, that have run out, or that only their user may set."""


@selecting
def browse(
    selection: dict[str, Any],
    queue: Queue,
    state: Annotated[str, typer.Option(help=_TEXTS["states"])] = "",
    after: Annotated[str, typer.Option("--from", help="the place that an earlier call named")] = "",
    limit: Annotated[int, typer.Option(help="messages at most; 0: all")] = 20,
    body_bytes: Annotated[int, typer.Option(help=_TEXTS["body_bytes"])] = BODY_SHOWN_BYTES,
    as_hex: Annotated[bool, typer.Option("--hex", help="the bodies as hexadecimal bytes")] = False,
    as_publish: Annotated[
        bool, typer.Option("--as-publish", help="a line of shell that publishes each again")
    ] = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Look at messages of a queue: nothing is taken, and nothing changes."""
    if as_publish:
        body_bytes = BODY_SHOWN_MAX
    shown, found = 0, list[BrowsedMessage]()
    with connect(uri) as connection:
        pages = Admin(connection).queues.pages(
            queue,
            states=state,
            **selection,
            after=after,
            limit=limit,
            body_bytes=body_bytes,
        )
        behind = ""
        for page in pages:
            behind = page.next
            shown += len(page.messages)
            for one in page.messages:
                if as_publish:
                    print(published_again(one))
                elif json and wanted_format() == JSONL:
                    output.as_json(one)
                elif as_hex:
                    output.say(f"{one.index}.{one.ordinal} {one.state} {one.body_bytes} bytes")
                    output.say(hex_lines(body_of(one)))
                else:
                    found.append(one)
    if not (as_publish or as_hex):
        output.listing(found, json, columns_of(BrowsedMessage))
    if behind:
        output.note(f"{shown:,} shown; there may be more: --from {behind}")


def body_of(one: BrowsedMessage) -> bytes:
    """Return the bytes that are shown of a body."""
    return base64.b64decode(one.body) if one.encoding == "base64" else one.body.encode()


def hex_lines(data: bytes) -> str:
    """Return bytes as lines: offset, hexadecimal, and what is printable ASCII."""
    lines = []
    for at in range(0, len(data), _HEX_WIDTH):
        piece = data[at : at + _HEX_WIDTH]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        lines.append(f"{at:08x}  {piece.hex(' '):<{3 * _HEX_WIDTH}} {text}")
    return "\n".join(lines)


def published_again(one: BrowsedMessage) -> str:
    """Return a line of shell that publishes a message where it came from; raises UsageError."""
    body = body_of(one)
    if len(body) < one.body_bytes or one.unreadable:
        raise UsageError(
            f"message {one.index}.{one.ordinal} has {one.body_bytes:,} bytes, of which "
            f"{BODY_SHOWN_MAX:,} can be shown: move it (warren queues move), or publish it yourself"
        )
    said: dict[str, Any] = {k: v for k, v in one.properties.items() if k not in _NOT_AGAIN}
    if one.headers:
        said["headers"] = one.headers
    words = ["warren", "publish", one.routing_key, "--base64", "--priority", str(one.priority)]
    if one.exchange:
        words += ["--exchange", one.exchange]
    if said:
        words += ["--properties", json_codec.dumps(said, ensure_ascii=False)]
    return f"echo {shlex.quote(base64.b64encode(body).decode())} | {shlex.join(words)}"
