"""Targets of whole connections, and of texts that clients, operators and their files give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.broker.clients091.peer import Peer
from tests.broker.clients10 import stream_fuzz
from tests.broker.clients10.test_connection import new
from tests.fuzz.target import Target, same
from tests.wire.kernel import frames as f
from warren_broker.clients091.connection import Connection
from warren_broker.clients10 import filter_set
from warren_broker.clients10.connection import Connection10
from warren_machines.definition_files import document
from warren_machines.message_filter.definition import MessageFilter
from warren_machines.message_filter.evaluator import Evaluator
from warren_wire import errors
from warren_wire.admin import exchanges as bindings
from warren_wire.admin import resources
from warren_wire.amqp091 import codec, methods
from warren_wire.amqp10 import addresses
from warren_wire.errors import Refusal
from warren_wire.links.definition import parse_shovel
from warren_wire.links.uris import parse_shovel_uri
from warren_wire.sql_filter import FilterRefused, SqlFilter

ARGUMENTS_MAX = 64
VALUES: tuple[Any, ...] = (None, True, 5, 1.5, "text", b"\xff")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# ------------------------------------------------------------------ AMQP 0.9.1


def method(data: bytes) -> None:
    """The payload of a method frame."""
    try:
        found = codec.decode_method(data)
    except Refusal:
        return
    encoded = codec.encode_method(found)
    same("method", codec.encode_method(codec.decode_method(encoded)), encoded)


def method_seeds() -> Iterator[bytes]:
    """Methods with tables of every type, and each method's number."""
    table = {"a": 1, "b": "text", "c": [True, None, 1.5], "d": {"e": b"x"}, "f": 1 << 40}
    yield codec.encode_method(methods.QueueDeclare(0, "q", False, True, False, False, False, table))
    for code in codec.METHODS:
        yield code.to_bytes(4, "big") + bytes(12)
        yield _shortest(code.to_bytes(4, "big"))


def _shortest(head: bytes) -> bytes:
    """Return a method of zeros as long as its arguments are: no change of octets finds that."""
    for size in range(ARGUMENTS_MAX):
        try:
            codec.decode_method(head + bytes(size))
            return head + bytes(size)
        except Refusal:
            continue
    raise AssertionError(head)


def opened091() -> Connection:
    """Return a connection with an open channel, 1, as the handshake leaves it.

    The handshake takes four fifths of the time of an input, and is the same each time.
    """
    connection = Peer().conn
    state = connection.state
    state.phase, state.user, state.vhost = "running", "guest", "/"
    state.negotiated(131_072, 2047, 60)
    state._last_token = 2
    channel = connection._channel(1)
    assert channel is not None
    channel.state, channel.at = "open", methods.ChannelOpen.code
    return connection


def connection091(data: bytes) -> None:
    """Frames on an open connection with a channel."""
    connection = opened091()
    connection.receive(data)
    for request in connection.take_requests():
        token = getattr(request, "token", None)  # what a publish needs no answer for has none
        if token is not None:
            connection.answer(token, errors.NotFound("no"))
    connection.take_output()


def connection091_seeds() -> Iterator[bytes]:
    """Publishing, settling, and methods of each class."""
    yield f.publish(1, b"", b"q", b"body") + f.ack(1, 1) + f.frame(8, 0, b"")
    for data in method_seeds():
        yield f.frame(1, 1, data)


# ------------------------------------------------------------------ AMQP 1.0


def logged_in10() -> Connection10:
    """Return a connection after the login, which is the same for every input."""
    connection = new()
    connection._sasl, connection.user = None, "guest"
    return connection


def connection10(data: bytes) -> None:
    """Frames after the login, of whatever bytes; their sizes are as in the input."""
    connection = logged_in10()
    connection.receive(stream_fuzz.FRAMES[stream_fuzz.LOGIN - 1] + data)
    stream_fuzz.carry_out(connection, passes=2)
    connection.end_of_input()
    stream_fuzz.carry_out(connection, passes=2)
    connection.free()


def connection10_seeds() -> Iterator[bytes]:
    """A client's frames: all, and the first ones with each of the others."""
    rest = stream_fuzz.FRAMES[stream_fuzz.LOGIN :]
    yield b"".join(rest)
    yield b"".join(rest[:6])
    for frame in rest[2:]:
        yield b"".join(rest[:2]) + frame


# ------------------------------------------------------------------ texts


def filters(data: bytes) -> None:
    """A SQL filter expression, and a message selector."""
    for translate in (str, filter_set.translate):
        try:
            made = SqlFilter(translate(_text(data)))
            Evaluator(MessageFilter((made.text,)))
        except FilterRefused:
            continue
        for value in VALUES:
            made.matches([value] * len(made.identifiers), 5)


def filters_seeds() -> Iterator[bytes]:
    """Each operator, and the words of selectors."""
    for text in (
        "properties.subject = 'a' AND NOT (a.b > 5 OR c IS NOT NULL)",
        "h.priority + 1 * 2 / 3 % 4 - -5 <> 1.5E3 AND [x y] IN ('a', \"b\", 3)",
        "name LIKE 'a%b_!%' ESCAPE '!' OR p.message_id NOT LIKE '%'",
        "TRUE OR 0x1F >= .5 AND p.creation_time < UTC()",
        "JMSPriority > 3 and color in ('red') or size is not null",
    ):
        yield text.encode()


def definitions(data: bytes) -> None:
    """A file of definitions."""
    try:
        document.parse(data)
    except errors.InvalidArgument:
        pass


def definitions_seeds() -> Iterator[bytes]:
    """A file with an object of each kind."""
    yield msgspec.json.encode(
        {
            "rabbit_version": "4.3.6",
            "users": [{"name": "u", "password_hash": "", "tags": ["administrator"]}],
            "vhosts": [{"name": "/", "metadata": {"tags": []}}],
            "permissions": [{"user": "u", "vhost": "/", "configure": "", "write": "", "read": ""}],
            "policies": [
                {"vhost": "/", "name": "p", "pattern": ".*", "definition": {"max-length": 1}}
            ],
            "parameters": [{"vhost": "/", "component": "shovel", "name": "s", "value": {}}],
            "exchanges": [{"vhost": "/", "name": "x", "type": "topic", "arguments": {}}],
            "queues": [{"vhost": "/", "name": "q", "durable": True, "arguments": {"x": 1.5}}],
            "bindings": [{"source": "x", "destination": "q", "destination_type": "queue"}],
        }
    )
    yield b'\xef\xbb\xbf{"users": null, "x": "\\ud800"}'


_TEXTS: tuple[Callable[[str], Any], ...] = (
    addresses.parse_target,
    addresses.parse_source,
    addresses.parse_to,
    bindings.parse_binding,
    lambda text: parse_shovel_uri("src-uri", text),
    lambda text: parse_shovel_uri("src-uri", text, "amqp10"),
)


def texts(data: bytes) -> None:
    """Addresses, URIs and segments of paths; the first octet chooses which."""
    if data:
        try:
            _TEXTS[data[0] % len(_TEXTS)](_text(data[1:]))
        except Refusal:
            pass


def texts_seeds() -> Iterator[bytes]:
    """Texts of each kind for each of the parsers."""
    for number in range(len(_TEXTS)):
        for text in (
            "/queues/q%20x",
            "/exchanges/x/k%2F",
            "src=x;dstq=q;key=k;args=gaFhkQE%3D",
            "amqps://u:p%40@[::1]:5671/v%2F?heartbeat=5&verify=verify_none",
        ):
            yield bytes((number,)) + text.encode()


def management(data: bytes) -> None:
    """A request: JSON of its method, path and body."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    match found:
        case ["shovel", name, value] if isinstance(name, str) and isinstance(value, dict):
            call: Callable[[], Any] = lambda: parse_shovel("/", name, value)  # noqa: E731
        case [str(word), str(path), body]:
            call = lambda: resources.parse_request(word, path, body)  # noqa: E731
        case _:
            return
    try:
        call()
    except Refusal:
        pass


def management_seeds() -> Iterator[bytes]:
    """A request for each route, with bodies for some of them."""
    bodies: tuple[Any, ...] = (
        None,
        {"durable": True, "arguments": {"x-max-length": 5}, "type": "quorum"},
        {"pattern": ".*", "definition": {"max-length": 5}, "apply_to": "queues", "priority": 1},
        {"password": "p", "tags": "administrator"},
        {"source": "x", "destination_queue": "q", "binding_key": "k", "arguments": {}},
    )
    for route, _ in resources.ROUTES.values():
        path = "/" + "/".join("name" if part.startswith(":") else part for part in route.pattern)
        for body in bodies:
            yield msgspec.json.encode([route.method, path, body])
    shovel = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": ["amqp://h"], "dest-queue": "b"}
    yield msgspec.json.encode(["shovel", "s", shovel])


TARGETS = (
    Target("method", method, method_seeds),
    Target("connection-0.9.1", connection091, connection091_seeds, compiled=True, plain=True),
    Target("connection-1.0", connection10, connection10_seeds, compiled=True, plain=True),
    Target("filters", filters, filters_seeds),
    Target("definitions", definitions, definitions_seeds),
    Target("texts", texts, texts_seeds),
    Target("management", management, management_seeds),
)
