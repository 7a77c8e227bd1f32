"""The URIs of a shovel's two ends, as RabbitMQ writes them; no text of this module has a password.

`amqp://user:password@host:port/vhost?option=value`. Without a host it is the node that runs the
shovel, as the user that has set it unless the URI names one (`cluster.link_logins`); without a path
the vhost `/`, over AMQP 1.0 the broker's default vhost. The two protocols have different options.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, unquote_plus

from warren_wire.certificate_login import EXTERNAL
from warren_wire.errors import InvalidArgument

AMQP091: Final = "amqp091"
AMQP10: Final = "amqp10"
PORTS: Final = {"amqp": 5672, "amqps": 5671}
"""Port of each scheme where a URI has none."""
HIDDEN: Final = "***"
"""What listings show instead of a password."""
SEALED: Final = "sealed:"
"""How a URI begins that `shovel.sealed_uris` has sealed; no scheme is called that."""
URIS_MAX: Final = 64
OWN_CLUSTER: Final = "warren-link-of"
"""Property of a link's connection to another broker: the id of its own cluster, which refuses it.
It may have come there by a proxy, or by a port that other nodes have."""
HEARTBEAT_S: Final = 10
CONNECT_MS: Final = 15_000
SASL_MECHANISMS: Final = ("plain", EXTERNAL.lower())
LOGIN_PLAIN: Final = "plain"
LOGIN_ANONYMOUS: Final = "anon"
LOGIN_NONE: Final = "none"
VERIFY: Final = ("verify_peer", "verify_none")
_CONNECT: Final = {"connection_timeout": (100, 600_000)}
_NUMBERS: Final = {
    AMQP091: {"heartbeat": (0, 65_535), **_CONNECT},
    AMQP10: {"idle_time_out": (0, 600_000), **_CONNECT},
}
_LOGINS: Final = {
    AMQP091: ("auth_mechanism", SASL_MECHANISMS),
    AMQP10: ("sasl", (LOGIN_PLAIN, LOGIN_ANONYMOUS, LOGIN_NONE, EXTERNAL.lower())),
}
_TLS: Final = ("cacertfile", "certfile", "keyfile", "password", "server_name_indication", "verify")
_IGNORED: Final = ("channel_max", "depth", "fail_if_no_peer_cert")
_OPTIONS: Final = {
    AMQP091: (*_NUMBERS[AMQP091], "auth_mechanism", *_TLS, *_IGNORED),
    AMQP10: (*_NUMBERS[AMQP10], "hostname", "sasl", *_TLS, "fail_if_no_peer_cert"),
}
_URI_KEYS: Final = ("uri", "src-uri", "dest-uri")
_CREDENTIALS: Final = re.compile(r"(?P<user>[a-zA-Z][\w+.-]*://[^/?#:@]*):.*@", re.DOTALL)
_QUERY_OPTION: Final = re.compile(r"(?P<key>[?&](?P<name>[^=&#]*)=)[^&#]*")


@dataclass(frozen=True, slots=True)
class ShovelUri:
    """One end's address.

    host         "": the node that runs the shovel
    options      those of the query, checked; `password` is that of the key file
    names_vhost  whether there is a path
    names_user   whether there is a user, or it logs in without one
    inside       name, secret and vhost with which it logs in where it leads to its own cluster
    given        as it was given, without credentials and options: what RabbitMQ shows
    """

    scheme: str
    host: str
    port: int
    vhost: str
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    options: dict[str, str] = field(default_factory=dict, repr=False)
    names_vhost: bool = True
    names_user: bool = True
    inside: tuple[str, str, str] = field(default=("", "", "/"), repr=False)
    given: str = ""

    def __str__(self) -> str:
        return self.shown(self.user if self.names_user or self.host else "")

    @property
    def place(self) -> tuple[str, int, str]:
        """What two URIs of the same vhost of the same node have in common."""
        return self.host.lower(), self.port if self.host else 0, self.vhost

    def shown(self, user: str = "") -> str:
        """Return the URI without its password and options."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = f"{host}:{self.port}" if self.host else ""
        login = f"{quote(user, safe='')}@" if user else ""
        return f"{self.scheme}://{login}{place}/{quote(self.vhost, safe='')}"


@dataclass(frozen=True, slots=True)
class ClusterPlaces:
    """What leads to the cluster of a node by its name.

    ports  on which the node, and others of its machine, listen for clients
    nodes  hosts and ports of all nodes; names in small letters
    """

    ports: tuple[int, ...] = ()
    nodes: tuple[tuple[str, int], ...] = ()

    def has(self, uri: ShovelUri) -> bool:
        """Return whether a URI leads to the cluster; names are not resolved, others may, too."""
        host = uri.host.lower().removesuffix(".")
        if not host or (host, uri.port) in self.nodes:
            return True
        return uri.port in self.ports and is_loopback(host)


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address is one of the machine's own, wherever it is."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def parse_shovel_uri(key: str, text: str, protocol: str = AMQP091) -> ShovelUri:
    """Parse one URI; raises InvalidArgument, which names the key.

    key       of the parameter, such as `src-uri`
    protocol  AMQP091 or AMQP10, which have different options
    """
    if text.startswith(SEALED):
        raise InvalidArgument(
            f"{key} was sealed with another secret of the cluster, or another name of it, and "
            "cannot be read: set the parameter again, or start the nodes with the `secret` and "
            "`cluster` that they had"
        )
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in PORTS:
        raise InvalidArgument(
            f"{key} is not a valid URI: write amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps:// "
            "for TLS"
        )
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, at, place = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    if "/" in path:
        raise InvalidArgument(
            f"{key} is not a valid URI: its path has a second '/'; write a vhost's '/' as %2F, and "
            "one of a user name or password, too"
        )
    if colon and unquote(password) == HIDDEN:
        raise InvalidArgument(
            f"{key} has the password {HIDDEN}, which lists show instead of one; give the password"
        )
    host, port = _place(key, place, PORTS[scheme])
    return ShovelUri(
        scheme,
        host,
        port,
        unquote(path) or "/",
        unquote(user) if at else "guest",
        unquote(password) if colon else "guest",
        _options(key, scheme, query, protocol),
        bool(path),
        bool(at),
        given=f"{scheme}://{place}{rest[len(authority) :]}",
    )


def _place(key: str, text: str, default: int) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, tail = text[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise InvalidArgument(f"{key} is not a valid URI: write an IPv6 address as [ADDRESS]")
        port = tail[1:]
    else:
        host, _, port = text.partition(":")
    if not port:
        return unquote(host), default
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise InvalidArgument(
            f"{key} is not a valid URI: after the host there may be a port from 1 to 65535, and "
            "before it USER:PASSWORD@, percent-encoded"
        )
    return unquote(host), int(port)


def _options(key: str, scheme: str, query: str, protocol: str) -> dict[str, str]:
    given = parse_qsl(query, keep_blank_values=True)
    options = dict(given)
    known, numbers = _OPTIONS[protocol], _NUMBERS[protocol]
    for name in options:
        if sum(1 for one, _ in given if one == name) > 1:
            raise InvalidArgument(f"{key} has the option {name[:40]!r} more than once; give one")
    for name, value in options.items():
        if name not in known:
            raise InvalidArgument(
                f"{key} has the option {name[:40]!r}; known are {', '.join(known)}"
            )
        if name in _TLS and scheme != "amqps":
            raise InvalidArgument(f"{key} has the option {name}, which needs amqps://")
        if name in numbers:
            least, most = numbers[name]
            if not value.isdecimal() or not least <= int(value) <= most:
                raise InvalidArgument(
                    f"{key} has {name}={value[:40]!r}: a number from {least} to {most} is expected"
                )
    for name, words in (_LOGINS[protocol], ("verify", VERIFY)):
        if options.get(name, words[0]) not in words:
            raise InvalidArgument(
                f"{key} has {name}={options[name][:40]!r}; known are {', '.join(words)}"
            )
    return options


def without_passwords(value: object) -> Any:
    """Return a parameter's value with `***` for the passwords in its URIs.

    It may be one that was imported and is no URI: whatever may be a password is hidden.
    """
    return with_uris(value, shown_uri)


def with_uris(value: object, change: Callable[[str], str]) -> object:
    """Return a parameter's value with each of its URIs changed."""
    if isinstance(value, list):
        return [with_uris(one, change) for one in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _each(item, change) if key in _URI_KEYS else with_uris(item, change)
        for key, item in value.items()
    }


def _each(value: object, change: Callable[[str], str]) -> object:
    if isinstance(value, list):
        return [_each(one, change) for one in value]
    return change(value) if isinstance(value, str) else value


def is_sealed(value: object) -> bool:
    """Return whether a parameter's value has a URI that is sealed."""
    hidden = with_uris(value, lambda uri: HIDDEN if uri.startswith(SEALED) else uri)
    return bool(hidden != value)


def has_password(uri: str) -> bool:
    """Return whether lists hide a part of what was given as a URI."""
    return shown_uri(uri) != uri


def shown_uri(uri: str) -> str:
    """Return a URI with `***` for its passwords."""
    if uri.startswith(SEALED):
        return HIDDEN
    shown = _CREDENTIALS.sub(rf"\g<user>:{HIDDEN}@", uri)
    return _QUERY_OPTION.sub(_option_shown, shown)


def _option_shown(found: re.Match[str]) -> str:
    """Return an option of a query, as it is decoded: `pass%77ord` is a password, too."""
    secret = "password" in unquote_plus(found["name"]).lower()
    return f"{found['key']}{HIDDEN}" if secret else found[0]
