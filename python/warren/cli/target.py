"""The cluster that a command connects to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from warren.calls import AdminCalls
from warren.cli.command_line import CONTEXT, FORMATS, URI, waits_not
from warren.cli.kept_contexts import complete_context, kept_contexts, uri_of
from warren.cli.unanswered import UnansweredNote
from warren.connection import Connection
from warren.errors import WarrenError
from warren.local import LocalCluster
from warren.local_node import STATE_FILE
from warren.uri import Address, parse_uri
from warren_wire.admin.queues import ListQueuesRequest

DIRECTORY = Path("warren-cluster")
COMPLETE_S = 2.0
COMPLETED_MAX = 200
"""What a shell waits for, and is told, when it completes a name."""
GUESS_TIMEOUT_S = 15.0
"""Timeout of a request to the default address, where there may be no broker."""
TIMEOUT_S = 40.0
"""Timeout of one request if the address has none: longer than the broker's operation_timeout_ms, so
that the answer of a cluster without a majority arrives; the library's default is longer still."""

Uri = Annotated[
    str | None,
    typer.Option(
        URI,
        CONTEXT,
        envvar="WARREN_URI",
        help="amqp://user:password@host:port,host:port/vhost, or a name of `warren context`; "
        "without it: the local cluster of `warren cluster start` in this directory, else the "
        "context in use, else guest at 127.0.0.1:5672",
        show_envvar=True,
        autocompletion=complete_context,
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        *FORMATS, help="print JSON instead of a table, a line of JSON for each value, or CSV"
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="then show what is new, until Ctrl-C")]


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
        return parse_uri(uri if "://" in uri else uri_of(uri), request_timeout_s=TIMEOUT_S)
    if (DIRECTORY / STATE_FILE).exists():
        address = LocalCluster(directory=DIRECTORY, detached=True).address
        return replace(address, request_timeout_s=TIMEOUT_S)
    if used := kept_contexts().used:
        return parse_uri(uri_of(used), request_timeout_s=TIMEOUT_S)
    return Address(request_timeout_s=GUESS_TIMEOUT_S)


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return names of queues for a shell to complete; none where no node answers soon."""
    try:
        address = address_of(ctx.params.get("uri") or os.environ.get("WARREN_URI"))
        quick = replace(address, connect_timeout_s=COMPLETE_S, request_timeout_s=COMPLETE_S)
        asked = ListQueuesRequest(
            count=COMPLETED_MAX, pattern=f"^{re.escape(incomplete)}", counts=False
        )
        with Connection(quick, name=f"warren cli {os.getpid()}") as connection:
            return [one.name for one in AdminCalls(connection).ask(asked)]
    except WarrenError:
        return []


Queue = Annotated[str, typer.Argument(help="the queue's name", autocompletion=complete_queue)]


def shovel_uri(address: Address) -> str:
    """Return the URI of the node that runs a shovel, which acts for the user that sets it."""
    return f"amqp:///{quote(address.vhost, safe='')}"
