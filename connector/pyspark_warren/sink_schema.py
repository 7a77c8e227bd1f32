"""The check of a sink's columns and their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark_warren.columns import COLUMNS, READ_ONLY, hint_of
from pyspark_warren.encode import NO_KEY
from pyspark_warren.errors import SchemaError
from pyspark_warren.options import Options

_TEXT: Final = ("string",)
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_TAKES: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "priority": _WHOLE,
    "delivery_mode": _WHOLE,
    "expiration": (*_WHOLE, "string"),
    "timestamp": ("timestamp", *_WHOLE),
}


def check_sink_schema(columns: Mapping[str, str], options: Options) -> None:
    """Raise SchemaError, with the remedy, for a column or type that a sink cannot publish.

    columns  name to Spark's simple type
    """
    if "body" not in columns:
        raise SchemaError(
            f"rows have no column body, in lower case (they have {', '.join(columns)}); name the "
            "message's bytes or text body, for example with to_json(struct(...))"
        )
    for name, kind in columns.items():
        if name in READ_ONLY:
            continue
        if name not in COLUMNS:
            hint = hint_of(name, [known for known in COLUMNS if known not in READ_ONLY])
            raise SchemaError(
                f"column {name!r} is none that a message has; {hint} Drop it, or "
                "put it into body or headers"
            )
        takes = _TAKES.get(name, _TEXT)
        if name == "headers":
            if not kind.startswith("map<string,"):
                raise SchemaError(f"column headers is {kind}; make it a map with string keys")
        elif kind not in takes and kind != "void":
            raise SchemaError(f"column {name} is {kind}; cast it to {' or '.join(takes)}")
    if "routing_key" not in columns and options.routing_key is None:
        raise SchemaError(NO_KEY)
