"""SQL filter expressions of AMQP 1.0, as RabbitMQ 4.3 takes them for streams.

A text becomes a `SqlFilter` once; the filter is then asked for each message. It knows no message:
it names the identifiers that it needs, and is given their values. Whatever the text and the values
are, both take bounded time: the text has at most FILTER_CHARS_MAX characters and FILTER_TOKENS_MAX
tokens, and LIKE needs no search that goes back.

https://docs.oasis-open.org/amqp/filtex/v1.0/csd01/filtex-v1.0-csd01.html, section 6
"""

from __future__ import annotations

from warren_wire.sql_filter.evaluate import SqlFilter, equal
from warren_wire.sql_filter.lexer import FILTER_CHARS_MAX, FILTER_TOKENS_MAX, FilterRefused
from warren_wire.sql_filter.tree import (
    APPLICATION_SECTION,
    HEADER_SECTION,
    PROPERTIES_SECTION,
    Identifier,
    Value,
)

__all__ = [
    "APPLICATION_SECTION",
    "FILTER_CHARS_MAX",
    "FILTER_TOKENS_MAX",
    "FilterRefused",
    "HEADER_SECTION",
    "Identifier",
    "PROPERTIES_SECTION",
    "SqlFilter",
    "Value",
    "equal",
]
