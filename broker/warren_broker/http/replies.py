"""What an HTTP request is answered, in RabbitMQ's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import msgspec

from warren_broker.http.frames import HIDDEN_CONDITION, NodeReply

NO_BODY: Final = object()
REALM: Final = 'Basic realm="RabbitMQ Management"'
"""RabbitMQ's: clients ask their user for credentials by this name."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A status and a value for the body; NO_BODY: none. headers: further ones."""

    status: int
    body: Any = NO_BODY
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpRefusal(Exception):
    """A refusal: `{"error": error, "reason": reason}`, and further headers."""

    def __init__(
        self, status: int, error: str, reason: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason)
        self.reply = HttpReply(status, {"error": error, "reason": reason}, headers or {})


def closing_answer(status: int, error: str, reason: str) -> bytes:
    """Return an answer, with its headers, that is the last one of a connection."""
    body = msgspec.json.encode({"error": error, "reason": reason})
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body


def bad_request(reason: str) -> HttpRefusal:
    """Return the refusal of a request that is wrong."""
    return HttpRefusal(400, "bad_request", reason)


def object_not_found() -> HttpRefusal:
    """Return RabbitMQ's answer for a path at which nothing is."""
    return HttpRefusal(404, "Object Not Found", "Not Found")


def not_authorised(reason: str) -> HttpRefusal:
    """Return the refusal of what the user may not do."""
    return HttpRefusal(401, "not_authorised", reason)


def login_failed(reason: str = "Not_Authorized") -> HttpRefusal:
    """Return the refusal of credentials that are missing or wrong."""
    return HttpRefusal(401, "not_authorized", reason, {"www-authenticate": REALM})


def unavailable(reason: str) -> HttpRefusal:
    """Return the refusal of what may work later."""
    return HttpRefusal(503, "service_unavailable", reason)


LOGIN_CONDITION: Final = "amqp:unauthorized-access"


def refusal_of(reply: NodeReply, looks: bool) -> HttpRefusal:
    """Return a node's refusal in RabbitMQ's form: what is wrong is 400, what is forbidden 401.

    looks  the request only looks at an object, or deletes it
    """
    status, reason = reply.status, str(reply.body)
    if status in (401, 403) or reply.condition == LOGIN_CONDITION:
        return not_authorised(reason)
    if reply.condition == HIDDEN_CONDITION:
        return HttpRefusal(404, "not_found", "Not Found")
    if status == 404:
        return object_not_found() if looks else HttpRefusal(404, "not_found", reason)
    if status == 503:
        return unavailable(reason)
    if status == 405:
        return HttpRefusal(405, "method_not_allowed", reason)
    if status == 501:
        return HttpRefusal(501, "not_implemented", reason)
    if status >= 500:
        return HttpRefusal(500, "internal_server_error", reason)
    return bad_request(reason)
