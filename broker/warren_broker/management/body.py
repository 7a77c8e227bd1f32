"""The parts of a `/management` request, read with types within bounds.

Extra body keys are refused with the known ones named, so that a misspelt option is not silently
without effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from warren_broker.errors import InvalidArgument
from warren_broker.management.requests import ManagementRequest

Names: TypeAlias = tuple[str, ...]
"""What stood in the path for the pattern's names, decoded."""
Rows: TypeAlias = tuple[tuple[int, ...], ...]
Query: TypeAlias = Mapping[str, str]
Make: TypeAlias = Callable[[Names, Query, Any], ManagementRequest]
"""From the path's names, the query, the body to a request; raises Refusal."""
Route: TypeAlias = tuple[str, Names, Make]
"""Method, the pattern's segments, the request."""

NAME_BYTES_MAX = 255
ATTEMPTS_MAX = 100_000
QUEUES_MAX = 10_000
INT64_MAX = (1 << 63) - 1
REQUIRED: Any = object()
"""The default of a key that must be there."""


class Body:
    """A request's map, read key by key with types and bounds."""

    def __init__(self, value: Any, known: tuple[str, ...]) -> None:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise InvalidArgument(f"the body is a {type(value).__name__}; a map is expected")
        self._values: dict[Any, Any] = value
        for key in self._values:
            if key not in known:
                shown = ", ".join(known) or "none"
                raise InvalidArgument(f"unknown key {key!r} in the body; known: {shown}")

    def text(self, key: str, default: Any = REQUIRED) -> str:
        """A string of at most 255 bytes."""
        value = self._get(key, str, default)
        return checked_name(key, value)

    def secret(self, key: str) -> str | None:
        """A string that no refusal shows; None: it is absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"{key} is a {type(value).__name__}; str is expected")
        return value

    def value(self, key: str) -> Any:
        """As it is; None: it is absent."""
        return self._values.get(key)

    def flag(self, key: str, default: bool) -> bool:
        """A boolean."""
        return bool(self._get(key, bool, default))

    def number(self, key: str, minimum: int, default: Any = REQUIRED) -> int:
        """An integer from `minimum` up to 64 bits."""
        value = self._get(key, int, default)
        if isinstance(value, bool) or not minimum <= value <= INT64_MAX:
            raise InvalidArgument(
                f"{key}={value!r}: a number from {minimum} to {INT64_MAX} is expected"
            )
        return int(value)

    def table(self, key: str) -> dict[str, Any]:
        """A map with string keys."""
        value = self._get(key, dict, {})
        return {str(name): value[name] for name in value}

    def rows_by_name(self, key: str, width: int) -> tuple[tuple[str, Rows], ...]:
        """A map from names to rows of `width` numbers each, in the order of the names.

        The rows are text, `1:2,3:4`: as lists of lists they would be more parts than a value as
        Proton has it can hold.
        """
        value = self._get(key, dict, REQUIRED)
        if not value or len(value) > QUEUES_MAX or not all(isinstance(name, str) for name in value):
            raise InvalidArgument(f"{key}: a map of 1 to {QUEUES_MAX} names is expected")
        return tuple(
            (checked_name(key, name), _rows(f"{key}[{name!r}]", value[name], width))
            for name in sorted(value)
        )

    def choice(self, key: str, known: tuple[str, ...], default: Any = REQUIRED) -> str:
        """One of a few words."""
        value = self._get(key, str, default)
        if value not in known:
            raise InvalidArgument(f"{key}={value[:40]!r}: one of {', '.join(known)} is expected")
        return str(value)

    def pattern(self, key: str) -> str:
        """A regular expression, by default one that is found in every name."""
        value = self.text(key, ".*")
        try:
            re.compile(value)
        except re.error as error:
            raise InvalidArgument(
                f"{key}={value!r} is not a regular expression: {error}; '.*' is found everywhere"
            ) from error
        return value

    def _get(self, key: str, kind: type, default: Any) -> Any:
        value = self._values.get(key)
        if value is None:
            if default is REQUIRED:
                raise InvalidArgument(f"the body lacks {key!r}")
            return default
        if not isinstance(value, kind):
            raise InvalidArgument(
                f"{key}={value!r} is a {type(value).__name__}; {kind.__name__} is expected"
            )
        return value


def _rows(what: str, value: Any, width: int) -> Rows:
    if not isinstance(value, str) or value.count(",") >= ATTEMPTS_MAX:
        raise InvalidArgument(f"{what}: a text of at most {ATTEMPTS_MAX} rows is expected")
    rows = []
    for text in value.split(",") if value else ():
        parts = text.split(":")
        if len(parts) != width:
            raise InvalidArgument(f"{what}: {text[:80]!r} is no row of {width} numbers with colons")
        rows.append(tuple(path_number(what, part) for part in parts))
    return tuple(rows)


def checked_name(what: str, value: str) -> str:
    """A name of at most 255 bytes; raises InvalidArgument."""
    if len(value.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise InvalidArgument(f"{what} {value[:40]!r}… is longer than {NAME_BYTES_MAX} bytes")
    return value


def path_number(what: str, text: str) -> int:
    """A number in a path; raises InvalidArgument."""
    if not text.isascii() or not text.isdigit() or int(text) > INT64_MAX:
        raise InvalidArgument(f"{what} {text[:40]!r} is not a number from 0 to {INT64_MAX}")
    return int(text)


def is_set(query: Query, key: str) -> bool:
    """Whether a flag in the query is on."""
    return query.get(key, "").lower() in ("true", "1")


def route(method: str, path: str, make: Make) -> Route:
    """A route; in `path`, `:name` stands for one segment, `::name` for one that is not decoded."""
    return method, tuple(path[1:].split("/")), make
