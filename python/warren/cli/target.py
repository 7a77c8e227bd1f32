"""The cluster that a command connects to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from warren.cli.command_line import waits_not
from warren.cli.unanswered import UnansweredNote
from warren.connection import Connection
from warren.local import LocalCluster
from warren.local_node import STATE_FILE
from warren.uri import Address, parse_uri

DIRECTORY = Path("warren-cluster")
GUESS_TIMEOUT_S = 15.0
"""Timeout of a request to the default address, where there may be no broker."""
TIMEOUT_S = 40.0
"""Timeout of one request if the address has none: longer than the broker's operation_timeout_ms, so
that the answer of a cluster without a majority arrives; the library's default is longer still."""

Uri = Annotated[
    str | None,
    typer.Option(
        envvar="WARREN_URI",
        help="amqp://user:password@host:port,host:port/vhost; without it: the local cluster of "
        "`warren cluster start` in this directory, else guest at 127.0.0.1:5672",
        show_envvar=True,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print JSON instead of a table")]
Queue = Annotated[str, typer.Argument(help="the queue's name")]


@contextmanager
def connect(uri: str | None) -> Iterator[Connection]:
    """Connect to the cluster of that address, or to the default one, and say what does not answer.

    raises  NoNodeReached: no node has accepted the connection within the timeout of one request;
            NothingListens: the command only reads, and every address refuses
    """
    address, name = address_of(uri), f"warren cli {os.getpid()}"
    refusing = address.hosts if waits_not() else ()
    with (
        UnansweredNote(refusing) as note,
        Connection(address, name=name, attempts=note) as connection,
    ):
        yield connection


def address_of(uri: str | None) -> Address:
    """Return the address and user of that URI, or of the default cluster."""
    if uri:
        return parse_uri(uri, request_timeout_s=TIMEOUT_S)
    if (DIRECTORY / STATE_FILE).exists():
        address = LocalCluster(directory=DIRECTORY, detached=True).address
        return replace(address, request_timeout_s=TIMEOUT_S)
    return Address(request_timeout_s=GUESS_TIMEOUT_S)


def shovel_uri(address: Address) -> str:
    """Return the URI of the node that runs a shovel, which acts for the user that sets it."""
    return f"amqp:///{quote(address.vhost, safe='')}"
