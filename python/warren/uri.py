"""The address of a cluster: hosts, vhost, credentials, connection options."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, quote, unquote

from warren.errors import UsageError

PORT = 5672
HOSTS_MAX = 64


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a cluster; the password is never shown.

    hosts              (name or address, port), tried in this order, starting with a random one
    connect_timeout_s  for one host: TCP, SASL, Open
    request_timeout_s  timeout of a request over all retries
    heartbeat_s         the idle timeout; 0: none
    """

    hosts: tuple[tuple[str, int], ...] = (("127.0.0.1", PORT),)
    vhost: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    connect_timeout_s: float = 5.0
    request_timeout_s: float = 60.0
    heartbeat_s: float = 10.0

    def __post_init__(self) -> None:
        if not self.hosts:
            raise UsageError("no host given; give one as host or host:port")
        if len(self.hosts) > HOSTS_MAX:
            raise UsageError(f"{len(self.hosts)} hosts given; {HOSTS_MAX} is the limit")
        for name in ("connect_timeout_s", "request_timeout_s"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}={getattr(self, name)!r} must be above 0 seconds")
        if self.heartbeat_s < 0:
            raise UsageError(f"heartbeat_s={self.heartbeat_s!r} is below 0; 0 turns heartbeats off")

    def __str__(self) -> str:
        hosts = ",".join(_host_text(name, port) for name, port in self.hosts)
        return f"amqp://{quote(self.user, safe='')}@{hosts}/{quote(self.vhost, safe='')}"

    def uri(self) -> str:
        """Return the URI with the password, for passing on; never log it."""
        hosts = ",".join(_host_text(name, port) for name, port in self.hosts)
        user, password = quote(self.user, safe=""), quote(self.password, safe="")
        return (
            f"amqp://{user}:{password}@{hosts}/{quote(self.vhost, safe='')}"
            f"?connect_timeout={self.connect_timeout_s:g}"
            f"&request_timeout={self.request_timeout_s:g}&heartbeat={self.heartbeat_s:g}"
        )

    def with_credentials(self, user: str | None, password: str | None) -> Address:
        """Return the same address for another user; None: unchanged."""
        return replace(
            self,
            user=self.user if user is None else user,
            password=self.password if password is None else password,
        )


def parse_uri(text: str, **unsaid: float) -> Address:
    """Parse `amqp://user:password@host:port,host:port/vhost?option=value` to an Address.

    Everything but the scheme and a host is optional. Options: connect_timeout,
    request_timeout, heartbeat, each in seconds. The vhost is percent-encoded: `%2F` and an empty
    path are the vhost `/`. UsageError never shows the password.

    unsaid  fields of the Address for which the text has no option
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme != "amqp":
        shown = scheme if separator else "none"
        raise UsageError(f"address has scheme {shown!r}; write amqp://user@host:port/vhost")
    rest, _, query = rest.partition("?")
    authority, _, path = rest.partition("/")
    credentials, at, hosts = authority.rpartition("@")
    user, colon, password = credentials.partition(":")
    given = {"hosts": parse_hosts(hosts), "vhost": unquote(path) or "/"}
    if at:
        given["user"] = unquote(user)
    if colon:
        given["password"] = unquote(password)
    return Address(**given, **{**unsaid, **_options(query)})  # type: ignore[arg-type]


def parse_hosts(text: str | list[str] | tuple[str, ...]) -> tuple[tuple[str, int], ...]:
    """Parse hosts as `host:port,host:port` or a list of them; [..] around IPv6 addresses."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    return tuple(_host(part.strip()) for part in parts if part.strip())


def as_address(where: str | Address) -> Address:
    """Return an Address as it is, or parse a URI."""
    return where if isinstance(where, Address) else parse_uri(where)


def _host(text: str) -> tuple[str, int]:
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
    return name, int(port) if port else PORT


def _host_text(name: str, port: int) -> str:
    """Invert `_host`."""
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


_OPTIONS = {
    "connect_timeout": "connect_timeout_s",
    "request_timeout": "request_timeout_s",
    "heartbeat": "heartbeat_s",
}


def _options(query: str) -> dict[str, float]:
    """Parse the options after the question mark."""
    found: dict[str, float] = {}
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in _OPTIONS:
            raise UsageError(f"unknown option {key!r} in the address; known: {', '.join(_OPTIONS)}")
        try:
            found[_OPTIONS[key]] = float(value)
        except ValueError:
            raise UsageError(
                f"option {key}={value!r} in the address is not a number of seconds"
            ) from None
    return found
