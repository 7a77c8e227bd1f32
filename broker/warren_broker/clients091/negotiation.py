"""The handshake of a 0.9.1 connection: authentication, limits, vhost."""

from __future__ import annotations

from typing import Any

from warren_broker.access import requests
from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.access.sasl_login import credentials, offered
from warren_broker.clients091 import consume
from warren_broker.clients091.state import ConnectionState
from warren_wire import errors
from warren_wire.amqp091 import codec, methods
from warren_wire.amqp091.methods import Method
from warren_wire.errors import Refusal
from warren_wire.relay_names import CAPABILITY, NACKS

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
    CAPABILITY,
    NACKS,
)
"""Capabilities announced to the client: RabbitMQ's list, and those of relays."""
LOGGED_IN = ("tuning", "opening", "asking", "running")
"""Phases of a connection that has a user."""


def start(config: ConnectionConfig) -> methods.ConnectionStart:
    """Return the first method of the handshake."""
    return methods.ConnectionStart(
        server_properties={
            "capabilities": dict.fromkeys(CAPABILITIES, True),
            "cluster_name": config.cluster_name,
            **config.properties,
        },
        mechanisms=" ".join(offered(config)).encode(),
        locales=b"en_US",
    )


def _start_ok(connection: ConnectionState, method: methods.ConnectionStartOk) -> None:
    connection.client_properties = method.client_properties
    given = method.client_properties.get("capabilities")
    connection.capabilities = (
        frozenset(name for name, value in given.items() if value is True)
        if isinstance(given, dict)
        else frozenset()
    )
    user, password = credentials(connection.config, method.mechanism, method.response)
    connection.phase = "securing"

    def refused(refusal: Refusal) -> None:
        _not_authenticated(connection, method.mechanism, refusal)

    def authenticated(result: Any) -> None:
        by_token = isinstance(result, requests.TokenAccepted)
        connection.rights = result.rights if by_token else None
        connection.user = result.rights.user if by_token else user
        connection.phase = "tuning"
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
        requests.AuthenticateRequest(
            token=connection.expect(None, errors.continued(refused, authenticated)),
            mechanism=method.mechanism,
            user=user,
            password=password,
        )
    )


def _not_authenticated(connection: ConnectionState, mechanism: str, refusal: Refusal) -> None:
    if not isinstance(refusal, errors.AccessRefused):
        connection.close(refusal)
    elif "authentication_failure_close" in connection.capabilities:
        connection.close(errors.login_refused(mechanism))
    else:
        connection.finish("login refused")


def _tune_ok(connection: ConnectionState, method: methods.ConnectionTuneOk) -> None:
    config = connection.config
    _within("frame_max", method.frame_max, codec.FRAME_BYTES_MIN, config.frame_max)
    _within("channel_max", method.channel_max, 1, config.channel_max)
    connection.negotiated(method.frame_max, method.channel_max or 65535, method.heartbeat)
    connection.phase = "opening"


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


def _open(connection: ConnectionState, method: methods.ConnectionOpen) -> None:
    def refused(refusal: Refusal) -> None:
        connection.close(refusal, at=methods.ConnectionOpen.code)

    def opened(_: object) -> None:
        connection.vhost = method.virtual_host
        connection.phase = "running"
        connection.send(0, methods.ConnectionOpenOk())

    connection.phase = "asking"
    connection.requests.append(
        requests.OpenVhostRequest(
            token=connection.expect(None, errors.continued(refused, opened)),
            vhost=method.virtual_host,
            user=connection.user,
        )
    )


def _update_secret(connection: ConnectionState, method: methods.ConnectionUpdateSecret) -> None:
    def refused(refusal: Refusal) -> None:
        if not isinstance(refusal, errors.NotAllowed):
            refusal = errors.NotAllowed("New secret was refused by one of the backends")
        connection.close(refusal, at=methods.ConnectionUpdateSecret.code)

    def updated(result: object) -> None:
        if isinstance(result, requests.TokenAccepted):
            connection.rights = result.rights
        connection.send(0, methods.ConnectionUpdateSecretOk())
        if isinstance(result, requests.TokenAccepted):
            for consumer in list(connection.consumers.values()):
                consume.cancel_unless_readable(consumer)

    connection.requests.append(
        requests.UpdateSecretRequest(
            token=connection.expect(None, errors.continued(refused, updated)),
            user=connection.user,
            password=method.new_secret.decode("utf-8", "surrogateescape"),
        )
    )


def _client_close(connection: ConnectionState, method: methods.ConnectionClose) -> None:
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
"""(phase, method) to its handler; anything else is a CHANNEL_ERROR on channel 0."""
