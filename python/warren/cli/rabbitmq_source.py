"""A RabbitMQ as the source of a migration: definitions over HTTP, counts over AMQP 0.9.1."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from typing import Any
from urllib.parse import quote, urlsplit

from warren.client_tls import client_context
from warren.errors import AccessRefused, Unavailable, UsageError
from warren.migration import SourceQueue
from warren.uri import ClientTls
from warren_wire.errors import Refusal
from warren_wire.links.uris import ShovelUri, parse_shovel_uri

MANAGEMENT_PORT = 15672
HTTP_S = 60.0
HTTP_BYTES_MAX = 256 << 20
QUEUE_COLUMNS = "name,exclusive,auto_delete,messages_unacknowledged,consumers"


def parse_source(text: str) -> ShovelUri:
    """Parse --from; UsageError."""
    try:
        found = parse_shovel_uri("--from", text)
    except Refusal as refusal:
        raise UsageError(refusal.detail) from None
    if not found.host:
        raise UsageError("--from has no host: write amqp://USER:PASSWORD@HOST:PORT/VHOST")
    return found


def fetch_definitions(source: ShovelUri, management: str | None) -> dict[str, Any]:
    """Return the definitions of the source's vhost; UsageError. See `_fetched`."""
    data, shown = _fetched(source, management, f"definitions/{quote(source.vhost, safe='')}")
    return parse_definitions(data, shown)


def fetch_queues(source: ShovelUri, management: str | None) -> dict[str, SourceQueue]:
    """Return the queues of the source's vhost by name; UsageError. See `_fetched`."""
    path = f"queues/{quote(source.vhost, safe='')}?columns={QUEUE_COLUMNS}"
    data, shown = _fetched(source, management, path)
    try:
        rows = [
            SourceQueue(
                str(row["name"]),
                bool(row.get("exclusive")),
                bool(row.get("auto_delete")),
                int(row.get("messages_unacknowledged") or 0),
                int(row.get("consumers") or 0),
            )
            for row in json.loads(data)
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{shown} has no queues of RabbitMQ: they are a JSON list") from None
    return {one.name: one for one in rows}


def _fetched(source: ShovelUri, management: str | None, what: str) -> tuple[bytes, str]:
    """Return an answer of the HTTP API, and its address without a password.

    management  http(s)://host:port of the HTTP API, perhaps with another user and password; None:
                port 15672 of the source's host
    raises      UsageError
    """
    url = management or f"http://{_host(source.host)}:{MANAGEMENT_PORT}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("--management is not an address: write http://HOST:15672, or https://")
    user, password = parts.username or source.user, parts.password or source.password
    port = "" if parts.port is None else f":{parts.port}"
    shown = f"{parts.scheme}://{_host(parts.hostname)}{port}"
    path = f"{parts.path.rstrip('/')}/api/{what}"
    request = urllib.request.Request(
        shown + path,
        headers={"Authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()},
    )
    hint = "give --management http://HOST:15672, or --definitions FILE of `export_definitions`"
    try:
        context = client_context(ClientTls()) if parts.scheme == "https" else None
        with urllib.request.urlopen(request, timeout=HTTP_S, context=context) as answer:
            data = answer.read(HTTP_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        why = {
            401: "user or password is refused, or the user lacks the tag management",
            404: f"there is no vhost {source.vhost}, or no management API",
        }.get(error.code, error.reason)
        raise UsageError(f"{shown} answers {error.code}: {why}; {hint}") from None
    except (OSError, urllib.error.URLError) as error:
        said = getattr(error, "reason", error)
        raise UsageError(f"{shown} cannot be reached: {said}; {hint}") from None
    if len(data) > HTTP_BYTES_MAX:
        raise UsageError(f"{shown} sends more than {HTTP_BYTES_MAX:,} bytes; {hint}")
    return data, shown


def parse_definitions(data: bytes, place: str) -> dict[str, Any]:
    """Parse definitions; UsageError when they are not a JSON object."""
    try:
        found = json.loads(data)
    except ValueError as error:
        raise UsageError(f"{place} has no definitions of RabbitMQ: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{place} has no definitions of RabbitMQ: they are a JSON object")
    return found


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class RabbitSource:
    """Counts of ready messages, over one connection that is opened again when it is lost."""

    def __init__(self, uri: ShovelUri) -> None:
        """Connect; see `ready`. UsageError: pika is missing, too."""
        try:
            import pika

            from warren_wire.sessions import endpoint, pika_connections
            from warren_wire.sessions.locate import OwnNode
        except ImportError:
            raise UsageError(
                "`warren migrate` needs pika: pip install 'warrenmq[broker]'"
            ) from None
        self._pika: Any = pika
        self._connect = pika_connections.blocking_connection
        self._in_words = endpoint.in_words
        self._is_access_refused = endpoint.is_access_refused
        self._not_found = endpoint.NOT_FOUND
        own = OwnNode(uri.scheme, uri.host, uri.port, message_bytes_max=0)
        try:
            self._parameters = endpoint.connection_parameters(uri, own, "warren migrate", False)
        except Refusal as refusal:
            raise UsageError(f"--from: {refusal.detail}") from None
        self._uri = uri
        self._connection: Any = None
        self.ready("")

    def ready(self, queue: str) -> int | None:
        """See MigrationSource.

        raises  Unavailable: it cannot be reached; AccessRefused: it refuses user, password, vhost
                or permission; UsageError: it refuses for another reason
        """
        failure: BaseException | None = None
        for _ in range(2):  # the connection may have been closed since the last time
            try:
                if self._connection is None or not self._connection.is_open:
                    self._connection = self._connect(self._parameters)
                if not queue:
                    return None
                channel = self._connection.channel()
                found = channel.queue_declare(queue, passive=True)
                channel.close()
                return int(found.method.message_count)
            except self._pika.exceptions.ChannelClosedByBroker as error:
                if error.reply_code == self._not_found:
                    return None
                self._check_access(error)
                raise UsageError(f"--from {self._uri}: {self._in_words(error)}") from None
            except (self._pika.exceptions.AMQPError, OSError) as error:
                self._check_access(error)
                failure, self._connection = error, None
        raise Unavailable(f"--from {self._uri}: {self._in_words(failure)}") from None

    def _check_access(self, error: BaseException) -> None:
        if self._is_access_refused(error):
            raise AccessRefused(
                f"--from {self._uri}: {self._in_words(error)}. What is left is at the source: "
                "correct user, password, vhost or permissions, and run this again"
            ) from None

    def close(self) -> None:
        """Close the connection."""
        made, self._connection = self._connection, None
        if made is not None and made.is_open:
            made.close()
