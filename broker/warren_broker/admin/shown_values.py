"""Values of messages as JSON and AMQP 1.0 have them."""

from __future__ import annotations

import math
from typing import Any


def shown(value: Any) -> Any:
    """Return a header's value as JSON has it."""
    if isinstance(value, dict):
        return {readable_text(key): shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, str):
        return readable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | float):
        return value
    return int(value) if isinstance(value, int) else str(value)


def readable_text(value: str) -> str:
    """Return a text with what is not UTF-8 in it written as escapes."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
