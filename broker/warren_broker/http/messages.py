"""Messages through the HTTP API: published and taken over AMQP 0.9.1, on threads.

Each request has a connection of its own to this node, with the request's credentials: what the user
may read and write is checked as for any client.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import pika
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)

from warren_broker.admin.shown_values import shown
from warren_broker.http.calls import HttpCall, decoded, text, whole_number
from warren_broker.http.replies import HttpRefusal, bad_request, not_authorised, unavailable
from warren_wire.admin.requests import BODY_BYTES_MAX
from warren_wire.amqp091.fields import DEPTH_MAX, SHORT_STRING_BYTES_MAX
from warren_wire.amqp091.properties import NAMES
from warren_wire.sessions.pika_connections import blocking_connection
from warren_wire.sessions.pika_properties import MessageProperties
from warren_wire.tls.contexts import client_side

THREADS: Final = 8
TAKEN_MAX: Final = 10_000
TAKEN_BYTES_MAX: Final = 32 << 20
"""Bodies in one answer; a request for more gets the first ones, the rest stays in the queue."""
AMQP_STEP_S: Final = 10.0
ACK_MODES: Final = (
    "ack_requeue_true",
    "ack_requeue_false",
    "reject_requeue_true",
    "reject_requeue_false",
)

ENCODINGS: Final = ("auto", "base64")
NUMBERS: Final = {"delivery_mode": 2, "priority": 255, "timestamp": (1 << 63) - 1}
_POOL: Final = ThreadPoolExecutor(THREADS, thread_name_prefix="messages")
_FREE: Final = threading.BoundedSemaphore(THREADS * 4)


class TooLate(Exception):
    """A connection has waited for the node for as long as it may."""


@dataclass(frozen=True, slots=True)
class _Taking:
    """What a request to take messages says."""

    count: int
    ack_mode: str
    encoding: str
    truncate: int | None


async def get_messages(call: HttpCall, vhost: str, queue: str) -> list[dict[str, Any]]:
    """Take messages from a queue, or look at them; raises HttpRefusal."""
    given = call.fields()
    mode = given.get("ackmode")
    if mode is None and "requeue" in given:  # before RabbitMQ 3.7
        mode = "ack_requeue_false" if given["requeue"] in (False, "false") else "ack_requeue_true"
    encoding = given.get("encoding")
    required = {"ackmode": mode, "count": given.get("count"), "encoding": encoding}
    for name, value in required.items():
        if value is None:
            raise bad_request(f"key_missing: {name}")
    if mode not in ACK_MODES:
        raise bad_request(
            f"Invalid ackmode value: {str(mode)[:40]}. Valid values are: {', '.join(ACK_MODES)}"
        )
    if encoding not in ENCODINGS:
        raise bad_request("Unsupported encoding. Please use auto or base64.")
    truncate = given.get("truncate")
    taking = _Taking(
        whole_number("count", given["count"], 0, TAKEN_MAX),
        mode,
        encoding,
        None if truncate is None else whole_number("truncate", truncate, 0, 1 << 31),
    )
    found: list[dict[str, Any]] = await _on_thread(
        call, vhost, lambda channel: _take(channel, queue, taking)
    )
    return found


async def publish_message(call: HttpCall, vhost: str, exchange: str) -> bool:
    """Publish a message; return whether it was routed. Raises HttpRefusal."""
    given = _published(call)
    for name in ("routing_key", "properties", "payload", "payload_encoding"):
        if given.get(name) is None:
            raise bad_request(f"key_missing: {name}")
    if not isinstance(given["payload"], str):
        raise bad_request("payload_not_string")
    key = text("routing_key", given["routing_key"])
    body = _payload(given["payload"], given["payload_encoding"])
    properties = _properties(given["properties"])
    routed: bool = await _on_thread(
        call, vhost, lambda channel: _publish(channel, exchange, key, body, properties)
    )
    return routed


_NULL: Final = msgspec.Raw(b"null")


class _PublishBody(msgspec.Struct):
    """The fields of a request to publish, as JSON."""

    routing_key: msgspec.Raw = _NULL
    properties: msgspec.Raw = _NULL
    payload: msgspec.Raw = _NULL
    payload_encoding: msgspec.Raw = _NULL


def _published(call: HttpCall) -> dict[str, Any]:
    """Return what a request to publish says; raises HttpRefusal.

    The payload is a text of any size. What else there is has the bound of other bodies.
    """
    read = msgspec.structs.asdict(call.pieces(_PublishBody))
    pieces = {name: bytes(value) for name, value in read.items()}
    if pieces["payload"][:1] in (b"[", b"{"):
        raise bad_request("payload_not_string")
    for name, value in pieces.items():
        if name != "payload" and len(value) > BODY_BYTES_MAX:
            raise bad_request(f"{name} has {len(value):,} bytes, {BODY_BYTES_MAX:,} is the most")
    return {name: decoded(value) for name, value in pieces.items()}


async def open_channel(call: HttpCall, vhost: str) -> None:
    """Open a channel in a vhost as the user, and close it; raises HttpRefusal."""
    await _on_thread(call, vhost, lambda channel: None)


def _payload(payload: str, encoding: Any) -> bytes:
    if encoding == "string":
        return payload.encode()
    if encoding != "base64":
        raise bad_request(f"unsupported_encoding: {str(encoding)[:40]}")
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("the payload is not base64") from None


def _properties(given: Any) -> MessageProperties:
    """Return the properties of a message; raises HttpRefusal for unknown ones and wrong types."""
    if given == []:
        given = {}  # what some languages make of an empty map
    if not isinstance(given, dict):
        raise bad_request("properties is not an object")
    for name, value in given.items():
        if name not in NAMES:
            raise bad_request(f"unknown property {name[:40]!r}; known: {', '.join(NAMES)}")
        if name in NUMBERS:
            whole_number(name, value, 0, NUMBERS[name])
        elif name == "headers":
            if not isinstance(value, dict):
                raise bad_request("headers is not an object")
            _check_value(value)
        else:
            _check_short(name, text(name, value))
    numbers = {name: int(given[name]) for name in NUMBERS if name in given}
    return MessageProperties(**{**given, **numbers})


def _check_value(value: Any, depth: int = 0) -> None:
    """Raise HttpRefusal for a header's value that AMQP 0.9.1 has no bytes for, or is too deep."""
    if depth > DEPTH_MAX:
        raise bad_request(f"headers are nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        for name, item in value.items():
            _check_short("a header's name", name)
            _check_value(item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            _check_value(item, depth + 1)
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise bad_request(f"{str(value)[:40]} is no number of 64 bits")


def _check_short(what: str, value: str) -> None:
    size = len(value.encode())
    if size > SHORT_STRING_BYTES_MAX:
        raise bad_request(f"{what} has {size} bytes; {SHORT_STRING_BYTES_MAX} is the limit")


# ------------------------------------------------------------------ over AMQP


async def _on_thread(call: HttpCall, vhost: str, work: Any) -> Any:
    if not _FREE.acquire(blocking=False):
        raise unavailable("too many requests publish or take messages: try again")
    future = asyncio.get_running_loop().run_in_executor(_POOL, _carried_out, call, vhost, work)
    future.add_done_callback(lambda _: _FREE.release())
    return await future


def _carried_out(call: HttpCall, vhost: str, work: Any) -> Any:
    """Do work with a channel; raises HttpRefusal."""
    try:
        connection = blocking_connection(_parameters(call, vhost))
        try:
            _limit_to(connection, call.job.timeout_ms / 1000)
            return work(connection.channel())
        finally:
            if connection.is_open:
                _limit_to(connection, AMQP_STEP_S)
                connection.close()
    except TooLate:
        raise unavailable(
            "no answer of the queue before the time limit: it has no leader now, perhaps. A "
            "message that was to be published may still be taken"
        ) from None
    except (ProbableAuthenticationError, ProbableAccessDeniedError):
        raise not_authorised("Access refused.") from None
    except (ChannelClosedByBroker, ConnectionClosedByBroker) as closed:
        raise _closed(closed) from None
    except (AMQPConnectionError, OSError) as error:
        raise unavailable(
            "this node accepts no clients: it is in maintenance, starts or stops "
            f"({type(error).__name__}); ask another node"
        ) from None
    except AMQPError as error:
        raise bad_request(f"{type(error).__name__} {error}") from None


def _limit_to(connection: Any, seconds: float) -> None:
    """Have the connection raise TooLate out of whatever it waits for then.

    1. A message is published to a queue without a leader.  2. Its confirm does not come, and pika
    waits for it without a limit, on one of THREADS threads.  3. As many such requests would end
    publishing over HTTP for all queues. `BlockingConnection.call_later` does not help: what it
    calls is called between two waits.
    """
    connection._impl._adapter_call_later(seconds, _too_late)


def _too_late() -> None:
    raise TooLate


def _closed(closed: Any) -> HttpRefusal:
    if closed.reply_code == 404:
        return HttpRefusal(404, "not_found", closed.reply_text)
    if closed.reply_code in (403, 530):
        return not_authorised(closed.reply_text)
    if closed.reply_code in (320, 541):
        return unavailable(closed.reply_text)
    return bad_request(f"{closed.reply_code} {closed.reply_text}")


def _parameters(call: HttpCall, vhost: str) -> pika.ConnectionParameters:
    scheme, host, port = call.job.amqp
    who = call.credentials
    context = None
    if scheme == "amqps":  # to this node itself: its certificate names another address
        context = client_side(checks=False)
    return pika.ConnectionParameters(
        host=host,
        port=port,
        virtual_host=vhost,
        credentials=pika.PlainCredentials(who.user, who.password),
        ssl_options=None if context is None else pika.SSLOptions(context),
        connection_attempts=1,
        socket_timeout=AMQP_STEP_S,
        stack_timeout=AMQP_STEP_S,
        blocked_connection_timeout=AMQP_STEP_S,
        heartbeat=0,
        client_properties={"connection_name": f"HTTP API for {who.peer}"},
    )


def _publish(channel: Any, exchange: str, key: str, body: bytes, properties: Any) -> bool:
    channel.confirm_delivery()
    try:
        channel.basic_publish(exchange, key, body, properties, mandatory=True)
    except UnroutableError:
        return False
    except NackError:
        raise bad_request("rejected Unable to publish message. Check queue limits.") from None
    return True


def _take(channel: Any, queue: str, taking: _Taking) -> list[dict[str, Any]]:
    """Get messages, and return them only when all have been got: else each would be the first."""
    found: list[dict[str, Any]] = []
    tags, size = [], 0
    no_ack = taking.ack_mode == "ack_requeue_false"
    while len(found) < taking.count and size < TAKEN_BYTES_MAX:
        method, properties, body = channel.basic_get(queue, auto_ack=no_ack)
        if method is None:
            break
        tags.append(method.delivery_tag)
        size += len(body)
        found.append(_shown(method, properties, body, taking))
    if not no_ack:
        for tag in tags:
            if taking.ack_mode == "ack_requeue_true":
                channel.basic_nack(tag, requeue=True)
            else:
                channel.basic_reject(tag, requeue=taking.ack_mode == "reject_requeue_true")
    return found


def _shown(method: Any, properties: Any, body: bytes, taking: _Taking) -> dict[str, Any]:
    first = body if taking.truncate is None else body[: taking.truncate]
    encoding = "base64"
    payload = ""
    if taking.encoding == "auto":
        try:
            payload, encoding = first.decode(), "string"
        except UnicodeDecodeError:
            encoding = "base64"
    if encoding == "base64":
        payload = base64.b64encode(first).decode()
    return {
        "payload_bytes": len(body),
        "redelivered": method.redelivered,
        "exchange": method.exchange,
        "routing_key": method.routing_key,
        "message_count": method.message_count,
        "properties": {
            name: shown(getattr(properties, name))
            for name in NAMES
            if getattr(properties, name, None) is not None
        },
        "payload": payload,
        "payload_encoding": encoding,
    }
