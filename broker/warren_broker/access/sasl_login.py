"""The SASL mechanisms of both protocols: which are offered, and what their responses say."""

from __future__ import annotations

from warren_broker.access.connection_config import ConnectionConfig
from warren_wire import errors
from warren_wire.amqp091 import fields
from warren_wire.certificate_login import EXTERNAL

MECHANISMS = ("PLAIN", "AMQPLAIN")
"""Mechanisms that are always offered."""
ANONYMOUS = "ANONYMOUS"


def offered(options: ConnectionConfig) -> tuple[str, ...]:
    """Return the SASL mechanisms that are offered to clients."""
    anonymous = () if options.anonymous is None else (ANONYMOUS,)
    external = () if options.external is None else (EXTERNAL,)
    return (*MECHANISMS, *anonymous, *external)


def credentials(options: ConnectionConfig, mechanism: str, response: bytes) -> tuple[str, str]:
    """Return user and password from the client's first response.

    The responses of ANONYMOUS and EXTERNAL say nothing; EXTERNAL has no password.

    fails  CommandInvalid: the mechanism is not offered; SyntaxRefused: the response is malformed
    """
    if mechanism not in offered(options):
        raise errors.CommandInvalid(
            f"unknown authentication mechanism '{mechanism}'; offered are "
            f"{' '.join(offered(options))}"
        )
    if mechanism == ANONYMOUS and options.anonymous is not None:
        return options.anonymous
    if mechanism == EXTERNAL and options.external is not None:
        return options.external, ""
    try:
        if mechanism == "PLAIN":
            instead, user, password = response.split(b"\0")
            if instead not in (b"", user):
                raise ValueError("a login acts as its own user, and as no other")
            return user.decode(), password.decode()
        size = len(response).to_bytes(4, "big")
        table = fields.FieldReader(size + response).table()
        return str(table["LOGIN"]), str(table["PASSWORD"])
    except (ValueError, KeyError, errors.Refusal) as bad:
        raise errors.SyntaxRefused(
            f"{mechanism} response of {len(response)} bytes is invalid"
        ) from bad
