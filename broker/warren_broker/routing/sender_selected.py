"""Sender-selected distribution: the routing keys in a message's headers CC and BCC."""

from __future__ import annotations

from warren_broker.arguments import plain, type_word
from warren_broker.errors import PreconditionFailed
from warren_broker.routing.matcher import Headers


def further_keys(headers: Headers) -> tuple[str, ...]:
    """Return the routing keys beside the message's own; raises PreconditionFailed unless lists.

    Entries that are not text are skipped, as in RabbitMQ. The caller removes BCC from the headers
    before the message is stored.
    """
    keys: list[str] = []
    for name in ("CC", "BCC"):
        value = plain(headers[name]) if name in headers else []
        if not isinstance(value, list):
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{type_word(value)}}}'
            )
        keys += [key for key in value if isinstance(key, str)]
    return tuple(keys)
