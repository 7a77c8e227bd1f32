"""The columns of sources and sinks: names and Spark types."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

from warren_wire.amqp091.properties import NAMES

HEADER_FIELDS: Final = {
    "type": "string",
    "string": "string",
    "long": "bigint",
    "double": "double",
    "boolean": "boolean",
    "binary": "binary",
    "timestamp": "timestamp",
    "json": "string",
}
"""The members of a typed header value; `type` says which of the others holds the value."""
HEADERS_DDL: Final = (
    f"map<string, struct<{', '.join(f'{name}: {ddl}' for name, ddl in HEADER_FIELDS.items())}>>"
)
MICROS_PER_SECOND: Final = 1_000_000
"""Of Spark's timestamps."""
HEADERS_TEXT_DDL: Final = "map<string, string>"
"""The other type of the column headers: values as text."""
COLUMNS: Final[dict[str, str]] = {
    "body": "binary",
    "exchange": "string",
    "routing_key": "string",
    "priority": "int",
    "content_type": "string",
    "content_encoding": "string",
    "headers": HEADERS_DDL,
    "delivery_mode": "int",
    "correlation_id": "string",
    "reply_to": "string",
    "expiration": "string",
    "message_id": "string",
    "timestamp": "timestamp",
    "type": "string",
    "user_id": "string",
    "app_id": "string",
    "delivery_count": "bigint",
    "acquired_count": "bigint",
    "redelivered": "boolean",
    "queue": "string",
    "position": "struct<index: bigint, ordinal: bigint>",
}
"""Every column of a source, with its Spark type, in order."""
PROPERTY_COLUMNS: Final = frozenset(NAMES).intersection(COLUMNS) - {"priority"}
"""Columns that are made of a message's property list; a block has the priorities apart."""
CORRUPT_DDL: Final = "binary"
"""The column that mode=PERMISSIVE adds: bytes that cannot be decoded, null otherwise."""
CORRUPT_DEFAULT: Final = "_corrupt_record"
STATE_COLUMNS: Final[dict[str, str]] = {
    "state": "string",
    "holder": "string",
    "claim": "bigint",
    "since": "timestamp",
    "next_try": "timestamp",
    "reason": "string",
    "entered": "timestamp",
}
"""What `spark.read` can say of a message beside it: where it is in its queue."""
BARE_COLUMNS: Final = frozenset(
    {"delivery_count", "acquired_count", "redelivered", "queue", "position", *STATE_COLUMNS}
)
"""Columns that do not need the message itself."""
READ_ONLY: Final = BARE_COLUMNS
"""Columns that a sink ignores: they describe how a message was received."""
STATE_DDL: Final = ", ".join(f"`{name}` {ddl}" for name, ddl in STATE_COLUMNS.items())


def hint_of(name: str, known: Iterable[str]) -> str:
    """Return what an unknown name may mean, or what is known."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f"did you mean {names[near[0]]}?" if near else "known ones: " + ", ".join(names.values())


def schema_ddl(headers_as_text: bool) -> str:
    """Return the columns of a message for Spark."""
    given = {**COLUMNS, "headers": HEADERS_TEXT_DDL} if headers_as_text else COLUMNS
    return ", ".join(f"`{name}` {ddl}" for name, ddl in given.items())
