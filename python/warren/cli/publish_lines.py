"""`warren publish`: one message per line."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from warren.cli import output
from warren.cli.target import Uri, connect
from warren.producer import Producer


def publish(
    routing_key: Annotated[str, typer.Argument(help="with the default exchange: the queue's name")],
    file: Annotated[
        Path | None, typer.Argument(help="one message per line; without it: stdin")
    ] = None,
    exchange: Annotated[str, typer.Option(help="empty: the default exchange")] = "",
    priority: Annotated[int | None, typer.Option(help="0 to 31, higher first")] = None,
    uri: Uri = None,
) -> None:
    """Publish lines with confirms; end when all are confirmed."""
    started = time.monotonic()
    count = 0
    source = sys.stdin.buffer if file is None else file.open("rb")
    with source, connect(uri) as connection, Producer(connection, exchange) as producer:
        for line in source:
            producer.send(line.rstrip(b"\r\n"), routing_key, priority=priority)
            count += 1
    took = time.monotonic() - started
    output.say(
        f"{count:,} messages confirmed in {took:.2f} s ({count / max(took, 1e-9):,.0f} per second)"
    )
