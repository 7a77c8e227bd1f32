"""The SASL mechanisms of both protocols: which are offered, and what their responses say."""

from __future__ import annotations

from typing import Protocol

import msgspec

from warren_wire import errors
from warren_wire.amqp091 import fields
from warren_wire.certificate_login import EXTERNAL

MECHANISMS = ("PLAIN", "AMQPLAIN")
"""Mechanisms that are always offered."""
ANONYMOUS = "ANONYMOUS"
LOGIN_FRAME_BYTES_MAX = 8192
"""Largest frame before the login, as in RabbitMQ: the client is not authenticated yet."""


class LoginOptions(Protocol):
    """What decides on the mechanisms that are offered.

    anonymous  user and password of clients with SASL ANONYMOUS; None: it is not offered
    external   user in the client's certificate, for SASL EXTERNAL; None: it is not offered
    """

    @property
    def anonymous(self) -> tuple[str, str] | None: ...

    @property
    def external(self) -> str | None: ...


class Logins(msgspec.Struct, frozen=True):
    """The options as a value.

    frame_bytes_max  of a client's login
    """

    anonymous: tuple[str, str] | None = None
    external: str | None = None
    frame_bytes_max: int = LOGIN_FRAME_BYTES_MAX

    def __repr__(self) -> str:
        return f"Logins(external={self.external!r})"


def offered(options: LoginOptions) -> tuple[str, ...]:
    """Return the SASL mechanisms that are offered to clients."""
    anonymous = () if options.anonymous is None else (ANONYMOUS,)
    external = () if options.external is None else (EXTERNAL,)
    return (*MECHANISMS, *anonymous, *external)


def credentials(options: LoginOptions, mechanism: str, response: bytes) -> tuple[str, str]:
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
