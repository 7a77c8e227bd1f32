"""The properties of AMQP 0.9.1 that every library calls by the same name, with a value each."""

from __future__ import annotations

from typing import Any, Final

EVERY: Final[dict[str, Any]] = {
    "content_type": "text/plain",
    "content_encoding": "utf-8",
    "delivery_mode": 1,
    "priority": 3,
    "correlation_id": "c",
    "reply_to": "r",
    "expiration": "60000",
    "message_id": "m",
    "user_id": "guest",
    "app_id": "a",
}
"""Without `type`, which pamqp calls `message_type`; the user is that of the test's connection."""
