"""`warren publish`: one message per line."""

from __future__ import annotations

import base64
import binascii
import json as json_codec
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from warren.cli import output
from warren.cli.target import Uri, connect
from warren.errors import UsageError
from warren.producer import Producer


def publish(
    routing_key: Annotated[str, typer.Argument(help="with the default exchange: the queue's name")],
    file: Annotated[
        Path | None, typer.Argument(help="one message per line; without it: stdin")
    ] = None,
    exchange: Annotated[str, typer.Option(help="empty: the default exchange")] = "",
    priority: Annotated[int | None, typer.Option(help="0 to 31, higher first")] = None,
    properties: Annotated[
        str, typer.Option(help="of AMQP 0.9.1 as a JSON object, for each; headers among them")
    ] = "",
    in_base64: Annotated[bool, typer.Option("--base64", help="lines are in Base64")] = False,
    uri: Uri = None,
) -> None:
    """Publish lines with confirms; end when all are confirmed."""
    started = time.monotonic()
    count = 0
    others = _properties(properties)
    source = sys.stdin.buffer if file is None else file.open("rb")
    with source, connect(uri) as connection, Producer(connection, exchange) as producer:
        for line in source:
            body = line.rstrip(b"\r\n")
            body = _decoded(body, count + 1) if in_base64 else body
            producer.send(body, routing_key, priority=priority, **others)
            count += 1
    took = time.monotonic() - started
    output.say(
        f"{count:,} messages confirmed in {took:.2f} s ({count / max(took, 1e-9):,.0f} per second)"
    )


def _properties(text: str) -> Mapping[str, Any]:
    try:
        found = json_codec.loads(text) if text else {}
    except ValueError as error:
        raise UsageError(f"--properties is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError('--properties: give a JSON object, as {"type": "order"}')
    return found


def _decoded(line: bytes, number: int) -> bytes:
    try:
        return base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError(f"line {number} is not Base64") from None
