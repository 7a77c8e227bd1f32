"""Tables or JSON on standard output."""

from __future__ import annotations

import json as json_codec
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from warren.cli import streams

Column: TypeAlias = str | Callable[[Any], Any]
"""What a column shows of each: an attribute, or what is made of it."""
_OUT = Console()
EXIT_REFUSED = 1
NOT_SAID = "?"
"""What an earlier version of a node does not say."""
ERRORS = Console(stderr=True)
"""Standard error, for everything but the answer."""


def as_json(value: Any) -> None:
    """Print one JSON document; only with JSON's own escapes where the terminal is not of UTF-8."""
    plain = not streams.speaks_unicode()
    print(json_codec.dumps(value, default=_plain, indent=2, ensure_ascii=plain))


def listing(
    found: Sequence[Any], json: bool, columns: Mapping[str, Column] | Sequence[str]
) -> None:
    """Print one JSON document, or a table with a row for each of them.

    columns  by title; a sequence: attributes that are their columns' titles
    """
    if json:
        as_json(found)
        return
    if not isinstance(columns, Mapping):
        columns = {each: each for each in columns}
    shown = [attrgetter(each) if isinstance(each, str) else each for each in columns.values()]
    table("", tuple(columns), [[value(one) for value in shown] for one in found])


def until(at: str, left_ms: str) -> Column:
    """Return a column that says in how long a time is, by the clock of the node that has set it.

    at       field with the time; 0: –. This machine's clock may be another one's by minutes
    left_ms  field with the milliseconds until then; None: the node's version does not say it
    """

    def shown(each: Any) -> str:
        left = getattr(each, left_ms)
        return "–" if not getattr(each, at) else NOT_SAID if left is None else f"in {seconds(left)}"

    return shown


def seconds(ms: int) -> str:
    """Return a time in seconds."""
    return f"{ms / 1000:,.0f} s"


def one(found: Any, json: bool, show: Callable[[Any], None]) -> None:
    """Print one JSON document, or what `show` prints."""
    if json:
        as_json(found)
    else:
        show(found)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; integer columns are right-aligned."""
    made = Table(title=escape(title) or None)
    for i, column in enumerate(columns):
        number = bool(rows) and all(isinstance(row[i], int) for row in rows)
        made.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in rows:
        made.add_row(*(escape(_text(cell)) for cell in row))  # a name may look like markup
    _OUT.print(made)


def facts(title: str, values: Mapping[str, Any]) -> None:
    """Print names with their values."""
    table(title, ("", ""), [(name, _text(value)) for name, value in values.items()])


def say(text: str) -> None:
    """Print a line."""
    _OUT.print(text, markup=False, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """Print a note on standard error."""
    ERRORS.print(text, markup=False, highlight=False, soft_wrap=True)


def plain_text(text: str) -> str:
    """Escape a text so that nothing in it is taken for rich's markup."""
    return escape(text)


def fail(text: str) -> None:
    """Print a failure on standard error."""
    ERRORS.print(f"warren: {text}", markup=False, highlight=False, soft_wrap=True)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) or "–"
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value) or "–"
    return str(value) or "–"


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)
