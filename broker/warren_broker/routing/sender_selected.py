"""Routing keys that a message names itself: the headers CC, BCC."""

from __future__ import annotations

from warren_broker.arguments import plain, type_word
from warren_broker.errors import PreconditionFailed
from warren_broker.routing.matcher import Headers


def further_keys(headers: Headers) -> tuple[str, ...]:
    """The routing keys beside the message's own; raises PreconditionFailed unless they are lists.

    Entries that are no text are passed over, as RabbitMQ does. BCC is to be taken out of the
    headers before the message is stored.
    """
    keys: list[str] = []
    for name in ("CC", "BCC"):
        value = plain(headers[name]) if name in headers else []
        if not isinstance(value, list):
            raise PreconditionFailed(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{type_word(value)}}}; '
                "give a list of routing keys"
            )
        keys += [key for key in value if isinstance(key, str)]
    return tuple(keys)
