"""Tables, JSON or CSV on standard output."""

from __future__ import annotations

import csv
import json as json_codec
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from warren.cli import streams
from warren.cli.command_line import CSV, JSON, wanted_format

Column: TypeAlias = str | Callable[[Any], Any]
"""What a column shows of each: an attribute, or what is made of it."""
_OUT = Console()
EXIT_REFUSED = 1
NOT_SAID = "?"
"""What an earlier version of a node does not say."""
ERRORS = Console(stderr=True)
"""Standard error, for everything but the answer."""


def as_json(value: Any) -> None:
    """Print what a program reads: one JSON document, or of each value a line or a row of CSV.

    Only with JSON's own escapes where the terminal is not of UTF-8.
    """
    shape, ascii_only = wanted_format(), not streams.speaks_unicode()
    each = value if isinstance(value, list | tuple) else (value,)
    if shape == CSV:
        _as_csv([json_codec.loads(json_codec.dumps(one, default=_plain)) for one in each])
        return
    if shape == JSON:
        print(json_codec.dumps(value, default=_plain, indent=2, ensure_ascii=ascii_only))
        return
    for one in each:
        as_json_line(one)


def as_json_line(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(json_codec.dumps(value, default=_plain, ensure_ascii=not streams.speaks_unicode()))


def _as_csv(found: Sequence[Any]) -> None:
    """Print rows below the names of all their fields; what is no text or number is JSON."""
    rows = [one if isinstance(one, dict) else {"value": one} for one in found]
    names = dict.fromkeys(name for row in rows for name in row)
    if names:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_csv_cell(row.get(name)) for name in names] for row in rows)


def _csv_cell(value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value
    return json_codec.dumps(value, ensure_ascii=False)


def listing(
    found: Sequence[Any], json: bool, columns: Mapping[str, Column] | Sequence[str]
) -> None:
    """Print what a program reads, or a table with a row for each of them.

    columns  by title, the most important first; a sequence: attributes that are their columns'
             titles. An attribute's title is its name in JSON, too
    """
    if json:
        as_json(found)
        return
    if not isinstance(columns, Mapping):
        columns = {each: each for each in columns}
    titles = [of if isinstance(of, str) else title for title, of in columns.items()]
    shown = [attrgetter(each) if isinstance(each, str) else each for each in columns.values()]
    table("", titles, [[value(one) for value in shown] for one in found])


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
    """Print what a program reads, or what `show` prints."""
    if json:
        as_json(found)
    else:
        show(found)


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table; integer columns are right-aligned.

    On a terminal it is as wide as that: columns are left out from the right, which is said, then
    the longest texts lose their middle. Elsewhere it has neither boxes nor line breaks.
    """
    texts = [[_text(cell) for cell in row] for row in rows]
    numbers = [bool(rows) and all(_is_number(row[i]) for row in rows) for i in range(len(columns))]
    if not _OUT.is_terminal:
        _print_plain(title, columns, texts, numbers)
        return
    shown, widths = fitted(columns, texts, _OUT.width)
    made = Table(title=escape(title) or None)
    for i in range(shown):
        justify: JustifyMethod = "right" if numbers[i] else "left"
        made.add_column(_broken(columns[i], widths[i]), justify=justify, no_wrap=True)
    for row in texts:
        cells = (shortened(text, widths[i]) for i, text in enumerate(row[:shown]))
        made.add_row(*map(escape, cells))  # a name may look like markup
    _OUT.print(made)
    if shown < len(columns):
        note(f"left out for want of width: {', '.join(columns[shown:])}; --json has everything")


BORDERS = 3
"""Characters of a table between two columns; the whole has one more."""
TEXT_WIDTH_MIN = 12
NAME_WIDTH_MIN = 24
"""Characters that a text, and one of the first column, keeps before a column is left out for it."""


def fitted(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> tuple[int, list[int]]:
    """Return how many columns fit, the first ones, and the width of each.

    At least one is shown, however narrow the terminal.
    """
    wanted = [
        max([_header_width(column), *(max(map(len, row[i].split("\n"))) for row in rows)])
        for i, column in enumerate(columns)
    ]
    shown = len(columns)
    while shown > 1 and _least(wanted[:shown]) > width:
        shown -= 1
    widths = wanted[:shown]
    while sum(widths) + BORDERS * shown + 1 > width and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return shown, widths


def _least(wanted: Sequence[int]) -> int:
    texts = sum(min(each, TEXT_WIDTH_MIN) for each in wanted[1:])
    return min(wanted[0], NAME_WIDTH_MIN) + texts + BORDERS * len(wanted) + 1


def _header_width(column: str) -> int:
    return max(map(len, _broken(column, 1).split("\n")))


def _broken(column: str, width: int) -> str:
    """Break a title behind its underlines and spaces where it is wider than its column."""
    if len(column) <= width:
        return column
    return column.replace("_", "_\n").replace(" ", "\n")


def shortened(text: str, width: int) -> str:
    """Return a text without its middle if it is wider."""
    if len(text) <= width:
        return text
    if width < 3:
        return text[:width]
    head = width // 2
    return f"{text[:head]}…{text[len(text) - (width - head - 1) :]}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _print_plain(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[bool]
) -> None:
    if title:
        say(title)
    table_rows = [list(columns), *rows] if any(columns) else list(rows)
    widths = [max((len(row[i]) for row in table_rows), default=0) for i in range(len(columns))]
    for row in table_rows:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numbers, strict=True)
        )
        say("  ".join(cells).rstrip())


def facts(title: str, values: Mapping[str, Any]) -> None:
    """Print names with their values."""
    table(title, ("", ""), [(name, _text(value)) for name, value in values.items()])


def say(text: str) -> None:
    """Print a line."""
    _OUT.print(text, markup=False, highlight=False, soft_wrap=True)


def flush() -> None:
    """Have what was printed leave: another program may read it line by line."""
    sys.stdout.flush()


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
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
