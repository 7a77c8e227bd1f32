"""The address of a cluster: hosts, vhost, credentials, connection options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from warren.errors import UsageError
from warren_wire.certificate_login import EXTERNAL

PORT = 5672
PORT_TLS = 5671
SCHEME = "amqp"
SCHEME_TLS = "amqps"
TIMEOUT_S_MAX = 31_536_000
"""A year: what sockets and locks wait is bounded."""
HEARTBEAT_S_MAX = 65_535
"""What AMQP 0.9.1 can say."""
HOSTS_MAX = 64
SASL_PLAIN = "PLAIN"
_TLS_OPTIONS = {"caFile": "ca_file", "certFile": "cert_file", "keyFile": "key_file"}
"""Fields of ClientTls that name files, by the option of a URI."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What a client needs for TLS; all files are in PEM format.

    ca_file    the accepted certificate authorities; None: those of the system
    cert_file  this client's certificate, for nodes that ask for one; key_file: its key, None: in
               the same file
    verify     whether the node's certificate and name are checked; without it an attacker between
               the two can read and change everything
    sasl_mechanism  PLAIN: log in with user and password; EXTERNAL: as the user that the node finds
                    in this client's certificate
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    verify: bool = True
    sasl_mechanism: str = SASL_PLAIN

    def __post_init__(self) -> None:
        if self.sasl_mechanism not in (SASL_PLAIN, EXTERNAL):
            raise UsageError(
                f"saslMechanism={self.sasl_mechanism!r} is not known: {SASL_PLAIN} or {EXTERNAL}"
            )
        if self.sasl_mechanism == EXTERNAL and self.cert_file is None:
            raise UsageError(f"saslMechanism={EXTERNAL} needs certFile, which names the user")
        if self.key_file is not None and self.cert_file is None:
            raise UsageError(f"keyFile={self.key_file!r} needs certFile, the key's certificate")

    def files(self) -> dict[str, str]:
        """Return the files that are given, by option."""
        given = {option: getattr(self, name) for option, name in _TLS_OPTIONS.items()}
        return {option: path for option, path in given.items() if path is not None}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a cluster; the password is never shown.

    hosts              (name or address, port), tried in this order, starting with a random one
    connect_timeout_s  for one host: TCP, SASL, Open
    request_timeout_s  timeout of a request over all retries
    heartbeat_s         the idle timeout; 0: none
    tls                None: none
    """

    hosts: tuple[tuple[str, int], ...] = (("127.0.0.1", PORT),)
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 60.0
    heartbeat_s: float = 10.0
    tls: ClientTls | None = None

    def __post_init__(self) -> None:
        if not self.hosts:
            raise UsageError("no host given; give one as host or host:port")
        if len(self.hosts) > HOSTS_MAX:
            raise UsageError(f"{len(self.hosts)} hosts given; {HOSTS_MAX} is the limit")
        for name in ("connect_timeout_s", "request_timeout_s"):
            if not 0 < getattr(self, name) <= TIMEOUT_S_MAX:
                raise UsageError(
                    f"{name}={getattr(self, name)!r} must be above 0 seconds, and at most "
                    f"{TIMEOUT_S_MAX:,}"
                )
        if not 0 <= self.heartbeat_s <= HEARTBEAT_S_MAX:
            raise UsageError(
                f"heartbeat_s={self.heartbeat_s!r} must be from 0, which turns heartbeats off, to "
                f"{HEARTBEAT_S_MAX:,} seconds"
            )
        if "\0" in self.user + self.password:
            raise UsageError("user or password has a zero byte, which ends a text in SASL PLAIN")

    def __str__(self) -> str:
        user, vhost = quote(self.user, safe=""), quote(self.vhost, safe="")
        who = "" if self.sasl_mechanism == EXTERNAL else f"{user}@"
        return f"{self.scheme}://{who}{self._places}/{vhost}"

    @property
    def sasl_mechanism(self) -> str:
        """How to log in: see ClientTls."""
        return SASL_PLAIN if self.tls is None else self.tls.sasl_mechanism

    @property
    def scheme(self) -> str:
        """The scheme of its URI: amqp, or amqps with TLS."""
        return SCHEME if self.tls is None else SCHEME_TLS

    @property
    def _places(self) -> str:
        return ",".join(
            f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name, port in self.hosts
        )

    def uri(self) -> str:
        """Return the URI with what it takes to log in, for passing on; never log it."""
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@"
        files = {} if self.tls is None else self.tls.files()
        options = "".join(f"&{option}={quote(path, safe='/')}" for option, path in files.items())
        if self.tls is not None and not self.tls.verify:
            options += "&verify=false"
        if self.sasl_mechanism != SASL_PLAIN:
            options += f"&saslMechanism={self.sasl_mechanism}"
        if self.sasl_mechanism == EXTERNAL:
            login = ""
        return (
            f"{self.scheme}://{login}{self._places}/{quote(self.vhost, safe='')}"
            f"?connect_timeout={self.connect_timeout_s:g}"
            f"&request_timeout={self.request_timeout_s:g}&heartbeat={self.heartbeat_s:g}{options}"
        )

    def with_credentials(self, user: str | None, password: str | None) -> Address:
        """Return the same address for another user; None: unchanged. A password is for PLAIN."""
        tls = self.tls
        if tls is not None and password is not None:
            tls = replace(tls, sasl_mechanism=SASL_PLAIN)
        return replace(
            self,
            user=self.user if user is None else user,
            password=self.password if password is None else password,
            tls=tls,
        )


def parse_uri(text: str, **unsaid: Any) -> Address:
    """Parse `amqp://user:password@host:port,host:port/vhost?option=value` to an Address.

    With `amqps` the connection has TLS, and the port is 5671 where none is given. Everything but
    the scheme and a host is optional. Options: connect_timeout, request_timeout, heartbeat, each in
    seconds; with amqps caFile, certFile, keyFile, verify (true or false) and saslMechanism, see
    ClientTls. The vhost is percent-encoded: `%2F` and an empty path are the vhost `/`. UsageError
    never shows the password.

    unsaid  fields of the Address for which the text has no option
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in (SCHEME, SCHEME_TLS):
        shown = scheme if separator else "none"
        raise UsageError(
            f"address has scheme {shown!r}; write amqp://user@host:port/vhost, or amqps:// for TLS"
        )
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    port = PORT_TLS if scheme == SCHEME_TLS else PORT
    try:
        given: dict[str, Any] = {"hosts": parse_hosts(hosts, port), "vhost": unquote(path) or "/"}
    except UsageError:
        if "@" in path + query:
            # What is taken as host and port is the user and the password's beginning.
            raise UsageError(
                "user or password has a sign that ends the address; write / as %2F and ? as %3F"
            ) from None
        raise
    if at:
        given["user"] = unquote(user)
    if colon:
        given["password"] = unquote(password)
    times, tls = _options(query)
    if scheme == SCHEME_TLS:
        given["tls"] = ClientTls(**tls)
    elif tls:
        raise UsageError(
            "options caFile, certFile, keyFile, verify and saslMechanism need an address with "
            "amqps://"
        )
    return Address(**{**unsaid, **times, **given})


def parse_hosts(
    text: str | list[str] | tuple[str, ...], port: int = PORT
) -> tuple[tuple[str, int], ...]:
    """Parse hosts as `host:port,host:port` or a list of them; [..] around IPv6 addresses.

    port  where none is given
    """
    parts = text.split(",") if isinstance(text, str) else list(text)
    return tuple(_host(part.strip(), port) for part in parts if part.strip())


def as_address(where: str | Address) -> Address:
    """Return an Address as it is, or parse a URI."""
    return where if isinstance(where, Address) else parse_uri(where)


def _host(text: str, default: int) -> tuple[str, int]:
    """Parse one host with its port."""
    if text.startswith("["):
        name, bracket, tail = text[1:].partition("]")
        port = tail[1:] if tail.startswith(":") else ""
        if not bracket or (tail and not tail.startswith(":")):
            raise UsageError(f"host {text!r}: write [address]:port")
    else:
        name, _, port = text.partition(":")
    if not name:
        raise UsageError(f"host {text!r} has no name; write host:port")
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise UsageError(f"host {name!r}: port {port!r} is not a number between 1 and 65535")
    return name, int(port) if port else default


_OPTIONS = {
    "connect_timeout": "connect_timeout_s",
    "request_timeout": "request_timeout_s",
    "heartbeat": "heartbeat_s",
}
_LOGIN_OPTION = "saslMechanism"
_BOOLEANS = {"true": True, "false": False}


def _options(query: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Parse the options after the question mark: fields of Address, and those of ClientTls."""
    times: dict[str, float] = {}
    tls: dict[str, Any] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key in _TLS_OPTIONS:
            tls[_TLS_OPTIONS[key]] = value
        elif key == _LOGIN_OPTION:
            tls["sasl_mechanism"] = value
        elif key == "verify":
            if value not in _BOOLEANS:
                raise UsageError(f"option verify={value!r} in the address is not true or false")
            tls[key] = _BOOLEANS[value]
        elif key in _OPTIONS:
            times[_OPTIONS[key]] = _seconds(key, value)
        else:
            known = ", ".join((*_OPTIONS, *_TLS_OPTIONS, "verify", _LOGIN_OPTION))
            raise UsageError(f"unknown option {key!r} in the address; known: {known}")
    return times, tls


def _seconds(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(
            f"option {key}={value!r} in the address is not a number of seconds"
        ) from None
