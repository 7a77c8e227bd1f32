"""Connections of pika: each attempt ends in an opened one or in an error of pika's own.

pika 1.3 to 1.4 does not expect a peer that accepts a connection and resets it at once, as a node
that stops does, or a load balancer without a node behind it. When the reset comes between pika's
two looks at the socket, `create_streaming_connection` raises ValueError through the event loop: the
loop's thread ends, with every other connection that it serves.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pika
from pika.adapters.select_connection import IOLoop
from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflowFailed,
    AMQPConnectorException,
    AMQPConnectorPhaseErrorBase,
)
from pika.adapters.utils.selector_ioloop_adapter import SelectorIOServicesAdapter
from pika.exceptions import AMQPConnectionError


class IOServices(SelectorIOServicesAdapter):  # type: ignore[misc]
    """What a `SelectConnection` takes as `custom_ioloop`: that loop, or one of its own."""

    def __init__(self, ioloop: Any = None) -> None:
        super().__init__(IOLoop() if ioloop is None else ioloop)

    def create_streaming_connection(
        self,
        protocol_factory: Callable[[], object],
        sock: object,
        on_done: Callable[[object], None],
        ssl_context: object = None,
        server_hostname: str | None = None,
    ) -> Any:
        """See pika; a socket that is not connected any more is told to `on_done`, soon."""
        try:
            return super().create_streaming_connection(
                protocol_factory, sock, on_done, ssl_context, server_hostname
            )
        except ValueError as wrong:
            reset = _reset(wrong)
            if reset is None:
                raise
            return self.call_later(0, lambda: on_done(reset))


def blocking_connection(parameters: pika.ConnectionParameters) -> pika.BlockingConnection:
    """Open a connection; raises AMQPError, with the cause as its argument where it has one."""
    try:
        return pika.BlockingConnection(parameters)
    except AMQPConnectorException as wrong:  # a time limit of the handshake, say
        raise AMQPConnectionError(wrong) from wrong
    except ValueError as wrong:
        reset = _reset(wrong)
        if reset is None:
            raise
        raise AMQPConnectionError(reset) from wrong


def innermost(wrong: object) -> Any:
    """Return the error in pika's envelopes: of the last address of a host, of one phase."""
    while True:
        inner: object = None
        if isinstance(wrong, AMQPConnectionWorkflowFailed):
            inner = wrong.exceptions[-1]
        elif isinstance(wrong, AMQPConnectorPhaseErrorBase):
            inner = wrong.exception
        elif isinstance(wrong, AMQPConnectionError) and wrong.args:
            inner = wrong.args[0]
        if not isinstance(inner, BaseException):
            return wrong
        wrong = inner


def _reset(wrong: ValueError) -> ConnectionResetError | None:
    """Return what pika means by an error about a socket; None: it is about something else."""
    if not isinstance(wrong.__context__, OSError):
        return None
    return ConnectionResetError(errno.ECONNRESET, "it closed the connection as soon as it was made")
