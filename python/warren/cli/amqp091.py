"""Connections over AMQP 0.9.1, with pika: to any broker that speaks it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from warren.cli.target import address_of
from warren.client_tls import client_context
from warren.errors import AccessRefused, NotFound, Unavailable, UsageError
from warren.uri import Address
from warren_wire.certificate_login import EXTERNAL

Pika: TypeAlias = Any
"""Something of pika's, which has no types."""


@contextmanager
def connect091(uri: str | None) -> Iterator[Pika]:
    """Yield a connection to the first host of that address that answers.

    raises  UsageError: pika is missing, or what was asked for is refused; NotFound, AccessRefused;
            Unavailable: no host answers, or the connection is lost
    """
    try:
        import pika

        from warren_wire.sessions import endpoint
        from warren_wire.sessions.pika_connections import blocking_connection, innermost
    except ImportError:
        raise UsageError("this command needs pika: pip install 'warrenmq[broker]'") from None
    address = address_of(uri)
    where = ", ".join(f"{host}:{port}" for host, port in address.hosts)
    try:
        connection = blocking_connection(parameters_of(pika, address))
        try:
            yield connection
        finally:
            if connection.is_open:
                connection.close()
    except (pika.exceptions.AMQPError, OSError) as error:
        text = f"{where}: {endpoint.in_words(error)}"
        code = getattr(innermost(error), "reply_code", 0)
        if endpoint.is_access_refused(error):
            raise AccessRefused(text) from error
        if code == endpoint.NOT_FOUND:
            raise NotFound(text) from error
        if isinstance(error, pika.exceptions.ChannelClosedByBroker):
            raise UsageError(text) from error
        raise Unavailable(text) from error


def parameters_of(pika: Pika, address: Address) -> list[Pika]:
    """Return pika's parameters for each host; raises UsageError for a file of TLS."""
    tls = address.tls
    context = None if tls is None else client_context(tls)
    if address.sasl_mechanism == EXTERNAL:
        login = pika.credentials.ExternalCredentials()
    else:
        login = pika.PlainCredentials(address.user, address.password)
    return [
        pika.ConnectionParameters(
            host=host,
            port=port,
            virtual_host=address.vhost,
            credentials=login,
            heartbeat=math.ceil(address.heartbeat_s),
            ssl_options=None if context is None else pika.SSLOptions(context, host),
            socket_timeout=address.connect_timeout_s,
            stack_timeout=address.connect_timeout_s,
            blocked_connection_timeout=address.request_timeout_s,
            client_properties={
                "connection_name": f"warren cli {os.getpid()}",
                "product": "Warren command line",
            },
        )
        for host, port in address.hosts
    ]
