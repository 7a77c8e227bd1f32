"""How a 0.9.1 connection begins: who am I, who are you, which limits, which vhost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from warren_broker import errors
from warren_broker.amqp091 import requests
from warren_broker.amqp091.wire import codec, fields, methods
from warren_broker.amqp091.wire.methods import Method
from warren_broker.errors import Refusal

if TYPE_CHECKING:
    from warren_broker.amqp091.connection import Connection

FRAME_BYTES_MAX_FIRST = 8192
"""Of frames before tune-ok, as in RabbitMQ: strangers get no more."""
MECHANISMS = "PLAIN AMQPLAIN"
CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)
"""What we tell the client we can do; RabbitMQ's list."""


class ConnectionConfig(msgspec.Struct, frozen=True):
    """Limits and what the node says of itself.

    frame_max           bytes of the largest frame, at least 4096; 0: no limit
    channel_max         highest channel number; 0: 65535
    heartbeat_s         seconds without a sign of life; 0: none
    message_bytes_max   a larger message ends its channel
    unfinished_bytes_max  of messages that are not complete, over all channels: more ends it
    handshake_ms        from the first byte to connection.open
    closing_ms          how long we wait for close-ok
    waiting_bytes_max   of what waits for the broker's answers; beyond, `wants_input` is False
    """

    frame_max: int = 131_072
    channel_max: int = 2047
    heartbeat_s: int = 60
    message_bytes_max: int = 16 * 1024 * 1024
    unfinished_bytes_max: int = 128 * 1024 * 1024
    handshake_ms: int = 10_000
    closing_ms: int = 10_000
    waiting_bytes_max: int = 16 * 1024 * 1024
    product: str = "RabbitMQ"
    version: str = "4.3.0"
    platform: str = "Warren"
    information: str = "Warren, a broker with Raft-replicated queues in Python"
    cluster_name: str = "warren"


def start(config: ConnectionConfig) -> methods.ConnectionStart:
    """Our first method."""
    return methods.ConnectionStart(
        server_properties={
            "capabilities": dict.fromkeys(CAPABILITIES, True),
            "cluster_name": config.cluster_name,
            "copyright": "The Warren authors",
            "information": config.information,
            "platform": config.platform,
            "product": config.product,
            "version": config.version,
        },
        mechanisms=MECHANISMS.encode(),
        locales=b"en_US",
    )


def credentials(mechanism: str, response: bytes) -> tuple[str, str]:
    """User and password from a start-ok.

    fails  CommandInvalid: a mechanism that is not offered; SyntaxRefused: no such response
    """
    if mechanism not in MECHANISMS.split():
        raise errors.CommandInvalid(
            f"unknown authentication mechanism '{mechanism}'; offered are {MECHANISMS}"
        )
    try:
        if mechanism == "PLAIN":
            _, user, password = response.split(b"\0")
            return user.decode(), password.decode()
        size = len(response).to_bytes(4, "big")
        table = fields.Reader(size + response).table()
        return str(table["LOGIN"]), str(table["PASSWORD"])
    except (ValueError, KeyError, Refusal) as bad:
        raise errors.SyntaxRefused(
            f"{mechanism} response of {len(response)} bytes is invalid"
        ) from bad


def _start_ok(connection: Connection, method: methods.ConnectionStartOk) -> None:
    connection.client_properties = method.client_properties
    given = method.client_properties.get("capabilities")
    connection.capabilities = (
        frozenset(name for name, value in given.items() if value is True)
        if isinstance(given, dict)
        else frozenset()
    )
    user, password = credentials(method.mechanism, method.response)
    connection.state = "securing"

    def authenticated(result: Any) -> None:
        if isinstance(result, Refusal):
            _not_authenticated(connection, method.mechanism, result)
            return
        connection.user = user
        connection.state = "tuning"
        config = connection.config
        connection.send(
            0,
            methods.ConnectionTune(
                channel_max=config.channel_max,
                frame_max=config.frame_max,
                heartbeat=config.heartbeat_s,
            ),
        )

    connection.requests.append(
        requests.Authenticate(
            token=connection.new_token(None, authenticated),
            mechanism=method.mechanism,
            user=user,
            password=password,
        )
    )


def _not_authenticated(connection: Connection, mechanism: str, refusal: Refusal) -> None:
    if not isinstance(refusal, errors.AccessRefused):
        connection.close(refusal)
    elif "authentication_failure_close" in connection.capabilities:
        connection.close(errors.login_refused(mechanism))
    else:
        connection.finish("login refused")


def _tune_ok(connection: Connection, method: methods.ConnectionTuneOk) -> None:
    config = connection.config
    _within("frame_max", method.frame_max, codec.FRAME_BYTES_MIN, config.frame_max)
    _within("channel_max", method.channel_max, 1, config.channel_max)
    connection.negotiated(method.frame_max, method.channel_max or 65535, method.heartbeat)
    connection.state = "opening"


def _within(field: str, given: int, lowest: int, highest: int) -> None:
    if given and given < lowest:
        raise errors.NotAllowed(
            f"negotiated {field} = {given} is lower than the minimum allowed value ({lowest})"
        )
    if highest and (given == 0 or given > highest):
        note = " (no limit)" if given == 0 else ""
        raise errors.NotAllowed(
            f"negotiated {field} = {given}{note} is higher than the maximum "
            f"allowed value ({highest})"
        )


def _open(connection: Connection, method: methods.ConnectionOpen) -> None:
    def opened(result: Any) -> None:
        if isinstance(result, Refusal):
            connection.close(result, at=methods.ConnectionOpen.code)
            return
        connection.vhost = method.virtual_host
        connection.state = "running"
        connection.send(0, methods.ConnectionOpenOk())

    connection.state = "asking"
    connection.requests.append(
        requests.OpenVhost(
            token=connection.new_token(None, opened),
            vhost=method.virtual_host,
            user=connection.user,
        )
    )


def _update_secret(connection: Connection, method: methods.ConnectionUpdateSecret) -> None:
    def updated(result: Any) -> None:
        if isinstance(result, Refusal):
            connection.close(
                errors.NotAllowed("New secret was refused by one of the backends"),
                at=methods.ConnectionUpdateSecret.code,
            )
            return
        connection.send(0, methods.ConnectionUpdateSecretOk())

    connection.requests.append(
        requests.UpdateSecret(
            token=connection.new_token(None, updated),
            user=connection.user,
            password=method.new_secret.decode("utf-8", "surrogateescape"),
        )
    )


def _client_close(connection: Connection, method: methods.ConnectionClose) -> None:
    connection.client_closes(method.reply_text)


HANDLERS: dict[tuple[str, type[Method]], Any] = {
    ("starting", methods.ConnectionStartOk): _start_ok,
    ("tuning", methods.ConnectionTuneOk): _tune_ok,
    ("opening", methods.ConnectionOpen): _open,
    ("running", methods.ConnectionUpdateSecret): _update_secret,
    **{
        (state, methods.ConnectionClose): _client_close
        for state in ("starting", "securing", "tuning", "opening", "asking", "running")
    },
}
"""(state, method) to what is done with it; anything else is a CHANNEL_ERROR on channel 0."""
