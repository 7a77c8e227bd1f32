"""Where a URI of a link leads: to the cluster of its own node, or to another broker.

A name is resolved once, and the connection goes to the addresses that were looked at: else it could
have another address by then.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from warren_wire.links.uris import ClusterPlaces, ShovelUri, is_loopback
from warren_wire.sessions.pika_connections import IOServices

_Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


class OwnNode:
    """The node that runs the link: where it listens, which is the place of URIs without a host.

    message_bytes_max  of a message that is passed on over AMQP 1.0
    cluster    the id of its cluster
    listeners  addresses and ports on which it listens for clients
    ports, nodes  see ClusterPlaces
    """

    def __init__(
        self,
        scheme: str,
        host: str,
        port: int,
        message_bytes_max: int,
        cluster: str = "",
        listeners: Iterable[tuple[str, int]] = (),
        ports: Iterable[int] = (),
        nodes: Iterable[tuple[str, int]] = (),
    ) -> None:
        self.scheme, self.host, self.port = scheme, host, port
        self.message_bytes_max = message_bytes_max
        self.cluster = cluster
        self.listeners = [(host, port) for host, port in listeners]
        self.places = ClusterPlaces(tuple(ports), tuple((host, port) for host, port in nodes))

    def is_at(self, address: str, port: int) -> bool:
        """Return whether a node of the cluster listens at an address."""
        ip = _ip(address)
        if ip is None or (str(ip), port) in self.places.nodes:
            return ip is not None
        own = [host for host, one in self.listeners if one == port]
        if own:
            return any(_reaches(ip, host) for host in own)
        return port in self.places.ports and (is_loopback(str(ip)) or _is_own(ip))


@dataclass(frozen=True, slots=True)
class Located:
    """What was found.

    here       it is the node's own cluster, and the node itself is connected
    addresses  of the peer, as `getaddrinfo` has them
    """

    here: bool
    addresses: tuple[Any, ...]


class FoundAddresses(IOServices):
    """Connects to addresses that were found, without asking for them again."""

    def __init__(self, ioloop: Any, found: Located) -> None:
        super().__init__(ioloop)
        self._addresses = found.addresses

    def getaddrinfo(
        self, host: str, port: int, on_done: Callable[[object], None], **options: object
    ) -> object:
        """See pika."""
        return self.call_later(0, lambda: on_done(list(self._addresses)))


def locate(
    services: IOServices,
    uri: ShovelUri,
    own: OwnNode,
    found: Callable[[Located | BaseException], None],
) -> None:
    """Call `found` with what was Located, or with the error."""
    here = own.places.has(uri)
    host, port = (uri.host, uri.port) if uri.host and not here else (own.host, own.port)

    def resolved(result: Any) -> None:
        if isinstance(result, BaseException):
            found(result)
        elif not here and any(own.is_at(one[4][0], port) for one in result):
            own_uri = (own.host, own.port)
            services.getaddrinfo(*own_uri, at_own, socktype=socket.SOCK_STREAM)
        else:
            found(Located(here, tuple(result)))

    def at_own(result: Any) -> None:
        found(result if isinstance(result, BaseException) else Located(True, tuple(result)))

    services.getaddrinfo(host, port, resolved, socktype=socket.SOCK_STREAM)


def _ip(text: str) -> _Ip | None:
    try:
        ip = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip


def _reaches(ip: _Ip, listener: str) -> bool:
    """Return whether connecting to an address comes to what listens at another one."""
    bound = _ip(listener)
    if ip.is_unspecified:
        return bound is None or bound.is_unspecified or bound.is_loopback
    if bound is not None and not bound.is_unspecified:
        return ip == bound
    return is_loopback(str(ip)) or _is_own(ip)


def _is_own(ip: _Ip) -> bool:
    """Return whether an address is one of this machine's: others cannot be bound to."""
    family = socket.AF_INET if ip.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(ip), 0))
    except OSError:
        return False
    return True
