"""A producer that publishes messages in blocks, with confirms."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from warren.connection import Connection
from warren.errors import TooLarge, Unroutable, UsageError, WarrenError
from warren.outgoing import SEND_WINDOW_BYTES, BlockSender, Outgoing
from warren_wire.amqp091 import properties as codec
from warren_wire.block import block as blocks

BATCH_BYTES = 256 << 10
CONFIRMS_POLL_S = 0.001
DELIVERY_MODE_PERSISTENT = 2
_TEMPLATES_MAX = 1024
_ROUTES_KEPT_MAX = 65_536
_LENGTH = [bytes((size,)) for size in range(256)]


class Confirm:
    """The outcome of a message; messages of one block with one routing key share it.

    done   the outcome is known
    error  why it was not published; None: not known yet, or published
    """

    __slots__ = ("_producer", "done", "error")

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.done = False
        self.error: WarrenError | None = None

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the outcome; raises why it was not published. Sends gathered messages."""
        if not self.done:
            self._producer.flush(timeout_s, raising=False)
        assert self.done, "flush returned before everything was decided"
        if self.error is not None:
            raise self.error


@dataclass(slots=True)
class _Batch:
    """Messages that will be sent as one block."""

    bodies: list[bytes] = field(default_factory=list)
    properties: list[bytes] = field(default_factory=list)
    routes: list[blocks.Route] = field(default_factory=list)
    priorities: list[int] = field(default_factory=list)
    ttls_ms: list[int | None] = field(default_factory=list)
    confirms: dict[blocks.Route, Confirm] = field(default_factory=dict)
    size_bytes: int = 0

    def encode(self) -> bytes:
        """The block."""
        ttls = self.ttls_ms if any(ttl is not None for ttl in self.ttls_ms) else None
        return blocks.encode(
            self.bodies,
            self.properties,
            self.routes,
            self.priorities,
            ttls,
            message_bytes_max=blocks.LARGEST_BODY_BYTES,
        )

    def only(self, route: blocks.Route) -> _Batch:
        """Return the messages of one route."""
        chosen = [i for i, each in enumerate(self.routes) if each == route]
        return _Batch(
            bodies=[self.bodies[i] for i in chosen],
            properties=[self.properties[i] for i in chosen],
            routes=[route] * len(chosen),
            priorities=[self.priorities[i] for i in chosen],
            ttls_ms=[self.ttls_ms[i] for i in chosen],
            confirms={route: self.confirms[route]},
        )


class Producer:
    """A producer, which gathers messages into blocks.

    A message is sent at once when nothing is in flight; otherwise messages gather and are sent
    together when the answer arrives or `batch_bytes` are reached. Gathered messages are sent at
    the latest by `flush`, `close` or a Confirm's `wait`: a program that stops sending must call
    one of them.

    Confirmed means: on the disks of a majority, in every queue that it is routed to. After a lost
    connection unconfirmed messages are sent again, so a message may be delivered twice (at least
    once); its message_id stays the same, so that a consumer can detect duplicates.

    exchange      "": the default exchange, where the routing key is a queue's name
    window_bytes   limit of unconfirmed bytes; `send` waits when it is reached
    message_ids   give every message without one a message_id
    """

    def __init__(
        self,
        connection: Connection,
        exchange: str = "",
        *,
        batch_bytes: int = BATCH_BYTES,
        window_bytes: int = SEND_WINDOW_BYTES,
        timeout_s: float | None = None,
        message_ids: bool = True,
    ) -> None:
        if batch_bytes < 1 or window_bytes < batch_bytes:
            raise UsageError(
                f"batch_bytes={batch_bytes}, window_bytes={window_bytes}: "
                "both must be positive, the window not below the batch"
            )
        self._exchange = exchange.encode()
        self._batch_bytes = batch_bytes
        self._sender = BlockSender.to_exchange(
            connection, exchange, window_bytes=window_bytes, timeout_s=timeout_s, raising=False
        )
        self._batch = _Batch()
        self._retries: list[_Batch] = []
        self._errors: list[WarrenError] = []
        self._prefix = secrets.token_hex(8) if message_ids else ""
        self._sent = 0
        self._templates: dict[tuple[int | None, int | None, str | None, bool], bytes] = {}
        self._routes: dict[str, blocks.Route] = {}
        self._polled = 0.0

    def send(
        self,
        body: bytes | str,
        routing_key: str = "",
        *,
        priority: int | None = None,
        expiration_ms: int | None = None,
        headers: Mapping[str, object] | None = None,
        content_type: str | None = None,
        message_id: str | None = None,
        **others: object,
    ) -> Confirm:
        """Publish a message; returns at once unless the window is full.

        priority       0 to 31, higher first; None: the queue's default
        expiration_ms  its time to live in a queue
        others         correlation_id, reply_to, type, timestamp (seconds), user_id, app_id,
                       content_encoding, delivery_mode (persistent unless given)
        raises         UsageError, TooLarge (16 MiB unless the broker says otherwise), Unavailable
        """
        data = body.encode() if isinstance(body, str) else bytes(body)
        if len(data) > blocks.LARGEST_BODY_BYTES:
            raise TooLarge(
                f"a message of {len(data)} bytes; no node takes more than "
                f"{blocks.LARGEST_BODY_BYTES}: split it"
            )
        if priority is not None and not 0 <= priority <= 255:
            raise UsageError(f"priority={priority}: 0 to 31 is expected (more counts as 31)")
        self._sent += 1
        number = message_id or (f"{self._prefix}-{self._sent}" if self._prefix else None)
        plain = not headers and not others
        encoded = (
            self._encode_plain(priority, expiration_ms, content_type, number)
            if plain
            else _encode(priority, expiration_ms, content_type, number, headers, others)
        )
        batch = self._batch
        route = self._routes.get(routing_key)
        if route is None:
            route = self._route(routing_key)
        confirm = batch.confirms.get(route)
        if confirm is None:
            confirm = batch.confirms[route] = Confirm(self)
        batch.bodies.append(data)
        batch.properties.append(encoded)
        batch.routes.append(route)
        batch.priorities.append(
            blocks.PRIORITY_DEFAULT if priority is None else min(priority, blocks.PRIORITY_MAX)
        )
        batch.ttls_ms.append(expiration_ms)
        batch.size_bytes += len(data) + len(encoded)
        self._maybe_ship()
        return confirm

    def flush(self, timeout_s: float | None = None, *, raising: bool = True) -> None:
        """Wait for all outcomes; raises the first error since the last flush.

        Raises Unavailable when the deadline passes: the rest stays in flight, call it again.
        """
        while self._batch.bodies or self._retries or self._sender.unanswered:
            self._ship_all()
            self._sender.flush(timeout_s)
        errors, self._errors = self._errors, self._errors if not raising else []
        if raising and errors:
            raise errors[0]

    def close(self) -> None:
        """Flush, then detach."""
        try:
            self.flush()
        finally:
            self._sender.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *failure: object) -> None:
        if kind is None:
            self.close()
        else:
            self._sender.close()

    # -------------------------------------------------------------- batches

    def _maybe_ship(self) -> None:
        batch = self._batch
        if batch.size_bytes >= self._batch_bytes or len(batch.bodies) >= blocks.BLOCK_MESSAGES_MAX:
            self._ship_all()
            return
        now = time.monotonic()
        if now - self._polled >= CONFIRMS_POLL_S:
            self._polled = now
            self._sender.poll()
            if not self._sender.unanswered:
                self._ship_all()

    def _ship_all(self) -> None:
        while self._retries:
            self._ship(self._retries.pop(0))
        if self._batch.bodies:
            batch, self._batch = self._batch, _Batch()
            self._ship(batch)

    def _ship(self, batch: _Batch) -> None:
        self._sender.send(batch.encode(), lambda outgoing: self._answered(batch, outgoing))

    def _answered(self, batch: _Batch, outgoing: Outgoing) -> None:
        """Record a block's outcome for its messages; an unroutable block is split by route."""
        if isinstance(outgoing.error, Unroutable) and len(batch.confirms) > 1:
            self._retries.extend(batch.only(route) for route in batch.confirms)
            return
        error = outgoing.error
        if isinstance(error, Unroutable):
            exchange, key = next(iter(batch.confirms))
            error = Unroutable(
                f"exchange {exchange.decode()!r} has no queue for routing key {key.decode()!r}; "
                "bind one, or declare it",
                status=error.status,
                condition=error.condition,
            )
        if error is not None and len(self._errors) < blocks.BLOCK_MESSAGES_MAX:
            self._errors.append(error)
        for confirm in batch.confirms.values():
            confirm.done, confirm.error = True, error

    def _route(self, routing_key: str) -> blocks.Route:
        """Return the route of a routing key, as a block encodes it."""
        if len(self._routes) >= _ROUTES_KEPT_MAX:
            self._routes.clear()
        route = self._routes[routing_key] = (self._exchange, _short(routing_key))
        return route

    def _encode_plain(
        self,
        priority: int | None,
        expiration_ms: int | None,
        content_type: str | None,
        message_id: str | None,
    ) -> bytes:
        """Encode the properties of a message without headers; many share all but the id."""
        key = (priority, expiration_ms, content_type, not message_id)
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= _TEMPLATES_MAX:
                self._templates.clear()
            template = _encode(priority, expiration_ms, content_type, None, None, {})
            if message_id:  # the last of those present: it is appended
                flags = int.from_bytes(template[:2], "big") | codec.flag("message_id")
                template = flags.to_bytes(2, "big") + template[2:]
            self._templates[key] = template
        if not message_id:
            return template
        text = _short(message_id)
        return template + _LENGTH[len(text)] + text


_OTHERS = frozenset(codec.NAMES) - {
    "headers",
    "priority",
    "expiration",
    "content_type",
    "message_id",
}


def _encode(
    priority: int | None,
    expiration_ms: int | None,
    content_type: str | None,
    message_id: str | None,
    headers: Mapping[str, Any] | None,
    others: Mapping[str, Any],
) -> bytes:
    """Encode the properties as in a 0.9.1 content header."""
    for name in others:
        if name not in _OTHERS:
            raise UsageError(f"unknown property {name!r}; known: {', '.join(sorted(_OTHERS))}")
    if expiration_ms is not None and not 0 <= expiration_ms < blocks.TTL_NONE:
        raise UsageError(
            f"expiration_ms={expiration_ms}: 0 to {blocks.TTL_NONE - 1} is expected; "
            "leave it out for no limit"
        )
    return codec.encode(
        codec.Properties(
            **{
                "delivery_mode": DELIVERY_MODE_PERSISTENT,
                "priority": priority,
                "content_type": content_type,
                "expiration": None if expiration_ms is None else str(expiration_ms),
                "message_id": message_id,
                "headers": dict(headers) if headers else None,
                **others,
            }
        )
    )


def _short(text: str) -> bytes:
    """Encode a text as a short string."""
    encoded = text.encode()
    if len(encoded) > 255:
        raise UsageError(f"{text[:40]!r}… has {len(encoded)} bytes; 255 is the limit")
    return encoded
