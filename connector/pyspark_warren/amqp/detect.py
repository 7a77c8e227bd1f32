"""Detection of the kind of broker behind an address, by what it says of itself."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Final, NamedTuple, TypeAlias

import pika
from pika import exceptions

from pyspark_warren.amqp.connection import open_any
from pyspark_warren.options.options import Options, for_broker
from pyspark_warren.options.specs import AMQP, AUTO, WARREN
from warren.errors import ConnectionLost
from warren.uri import ClientTls
from warren_wire.amqp091.codec import FRAME_END, FRAME_METHOD, PROTOCOL_HEADER, decode_method
from warren_wire.amqp091.methods import ConnectionStart
from warren_wire.errors import Refusal
from warren_wire.links.uris import AMQP10

_HEAD: Final = struct.Struct(">BHI")
_START_BYTES_MAX: Final = 128 << 10
"""The largest connection.start that is read: a frame's size before any is negotiated, many times
over (RabbitMQ's has some 500 bytes)."""
_PLATFORM: Final = "Warren"
_NO_AMQP: Final = "does not speak AMQP, or only with TLS"
_HEADERS_10: Final = (b"AMQP\x03\x01\x00", b"AMQP\x00\x01\x00", b"AMQP\x02\x01\x00")
"""What a broker of AMQP 1.0 alone answers to any header: with SASL, without, with TLS."""
_HEADER_SASL: Final = b"AMQP\x03\x01\x00\x00"
_ONLY_10: Final = "an AMQP 1.0 broker"


class FoundBroker(NamedTuple):
    """What a broker says of itself.

    broker  WARREN, AMQP or AMQP10
    name    product and version, for texts
    """

    broker: str
    name: str


_Address: TypeAlias = tuple[tuple[tuple[str, int], ...], ClientTls | None]
_found: dict[_Address, FoundBroker] = {}
_lock = threading.Lock()


def detect(options: Options) -> Options:
    """Return the options with `broker` known: as given, or else as the broker says.

    Called on Spark's driver; executors get the result with the options. A process asks an address
    once.

    raises  WarrenSparkError: no host answers, none speaks AMQP; OptionError: an option
            means nothing with this kind of broker
    """
    if options.broker != AUTO:
        return options
    address = options.address()
    key = (address.hosts, address.tls)
    with _lock:
        found = _found.get(key)
        if found is None:
            doing = f"asking {options.addresses()} what broker it is"
            found = _found[key] = open_any(options, doing, _ask)
    where = ",".join(f"{host}:{port}" for host, port in options.hosts)
    return for_broker(options, found.broker, f"{found.name} at {where} (broker={found.broker})")


def _ask(one: pika.ConnectionParameters) -> FoundBroker:
    """Read connection.start, with which the broker answers the protocol's header, and leave.

    A broker that closes the connection at that header is asked with that of AMQP 1.0.
    """
    try:
        return _asked(one, PROTOCOL_HEADER)
    except ConnectionLost as lost:
        try:
            return _asked(one, _HEADER_SASL)
        except (OSError, exceptions.IncompatibleProtocolError, ConnectionLost):
            raise lost from None


def _asked(one: pika.ConnectionParameters, header: bytes) -> FoundBroker:
    with socket.create_connection((one.host, one.port), one.socket_timeout) as plain:
        if one.ssl_options is None:
            return _first_frame(plain, header)
        options = one.ssl_options
        with options.context.wrap_socket(plain, server_hostname=options.server_hostname) as secure:
            return _first_frame(secure, header)


def _first_frame(made: socket.socket, header: bytes) -> FoundBroker:
    """Return what the broker's first frame says; its time is that of the socket's calls."""
    end_s = time.monotonic() + (made.gettimeout() or 0.0)
    made.sendall(header)
    head = _exactly(made, _HEAD.size, end_s)
    if head in _HEADERS_10:
        return FoundBroker(AMQP10, _ONLY_10)
    kind, channel, size = _HEAD.unpack(head)
    if (kind, channel) != (FRAME_METHOD, 0) or size > _START_BYTES_MAX:
        raise exceptions.IncompatibleProtocolError(f"it answers {head!r}")
    payload = _exactly(made, size + 1, end_s)
    if payload[-1] != FRAME_END:
        raise exceptions.IncompatibleProtocolError(f"it answers {head + payload[:40]!r}")
    return _found_in(payload[:-1])


def _exactly(made: socket.socket, size: int, end_s: float) -> bytes:
    """Read so many bytes before that moment of time.monotonic, in however many pieces."""
    data = b""
    while len(data) < size:
        try:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            made.settimeout(left_s)
            more = made.recv(size - len(data))
        except TimeoutError:
            text = f"it does not answer in time: it is overloaded, or {_NO_AMQP}"
            raise ConnectionLost(text) from None
        except ConnectionResetError:
            more = b""
        if not more:
            if data:
                raise exceptions.IncompatibleProtocolError(f"it answers {data[:40]!r}")
            raise ConnectionLost(f"it closed the connection without an answer: it {_NO_AMQP}")
        data += more
    return data


def _found_in(payload: bytes) -> FoundBroker:
    try:
        start = decode_method(payload)
    except Refusal as wrong:
        raise exceptions.IncompatibleProtocolError(f"its connection.start: {wrong}") from None
    if not isinstance(start, ConnectionStart):
        raise exceptions.IncompatibleProtocolError(f"it begins with {start.name}")
    said = start.server_properties
    name = f"{said.get('product', 'a broker')} {said.get('version', '')}".strip()
    if said.get("platform") == _PLATFORM:
        return FoundBroker(WARREN, _PLATFORM)
    return FoundBroker(AMQP, name[:80])
