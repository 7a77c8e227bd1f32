"""The key by which the HTTP API names one of the bindings between the same two objects.

As in RabbitMQ it is the routing key, `~` for an empty one, with a digest of the arguments behind it
if there are any. Clients take it from an answer and give it back: what it is made of is not theirs.
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import Any, Final
from urllib.parse import quote_plus

import msgspec

EMPTY_KEY: Final = "~"
KEY_DIGEST_BYTES: Final = 12


def properties_key(routing_key: str, arguments: dict[str, Any]) -> str:
    """Return the key of a binding; two with the same key are the same binding."""
    key = quote_plus(routing_key).replace("~", "%7E")
    if not arguments:
        return key or EMPTY_KEY
    packed = msgspec.msgpack.encode(arguments, order="sorted")
    digest = hashlib.sha256(packed).digest()[:KEY_DIGEST_BYTES]
    return f"{key}{EMPTY_KEY}{urlsafe_b64encode(digest).decode()}"
