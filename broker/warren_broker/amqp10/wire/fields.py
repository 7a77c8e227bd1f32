"""Fields that the engine decodes when they are read, and that may be anything then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren_broker.amqp10.wire.proton import ProtonException
from warren_broker.errors import InvalidArgument


def read_map(what: str, read: Callable[[], Any]) -> dict[Any, Any]:
    """Return a map that the peer may have sent, {} if it has not; raises InvalidArgument.

    what  names it in the error
    """
    try:
        value = read()
    except (ArithmeticError, RecursionError, TypeError, ValueError, ProtonException) as error:
        raise InvalidArgument(f"{what} cannot be read: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument(f"{what} must be a map, not a value of type {type(value).__name__}")
    return value
