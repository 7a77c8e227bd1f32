"""The parts of the reference that the code has: text for `<!-- generated: NAME -->` in a page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import typer

import warren
from pyspark_warren import errors
from pyspark_warren.options.options import SPECS, options_table
from warren.cli.app import app
from warren_broker.http import openapi
from warren_broker.http.routes import TABLE

UNSAID: Final = ("help", "uri")
"""Options of every command, which the page says once."""


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, ("---",) * len(heads), *rows]
    cells = ([cell.replace("|", "\\|") for cell in row] for row in lines)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _options(where: str) -> str:
    """Return the table of the options of one side: those of both, of a source, of a sink."""
    named = {spec.name for spec in SPECS if spec.where == where}
    rows = [
        (f"`{name}`", f"`{default}`" if default else "", meaning)
        for name, default, meaning in options_table("write" if where == "write" else "read")
        if name in named
    ]
    return _table(("option", "default", "meaning"), rows)


def _conditions() -> str:
    """Return the table of the named conditions of the connector, by their classes."""
    found: dict[str, str] = {}
    for one in vars(errors).values():
        if inspect.isclass(one) and issubclass(one, errors.WarrenSparkError):
            found.setdefault(one.condition, _first(one))
    del found["WARREN"]  # the base, which is never raised
    return _table(("condition", "meaning"), ((f"`{name}`", text) for name, text in found.items()))


def _first(one: Any) -> str:
    """Return the first paragraph of a docstring in one line."""
    return " ".join((inspect.getdoc(one) or "").split("\n\n")[0].split())


def _commands() -> str:
    """Return a section for each command of `warren`, with its arguments and options."""
    return "\n\n".join(_of_command(typer.main.get_command(app), "warren"))


def _of_command(command: Any, path: str) -> Iterator[str]:
    if hasattr(command, "commands"):
        if path != "warren":
            yield f"## {path}\n\n{_line(command.help)}"
        for name, one in command.commands.items():
            yield from _of_command(one, f"{path} {name}")
        return
    shown = [one for one in command.params if one.name not in UNSAID and not one.hidden]
    arguments = "".join(f" {_named(one)}" for one in shown if not _is_option(one))
    level = "##" if path.count(" ") == 1 else "###"
    yield f"{level} {path}\n\n`{path}{arguments}`\n\n{_line(command.help)}"
    if rows := [_row(one) for one in shown if _is_option(one)]:
        yield _table(("option", "meaning"), rows)


def _named(one: Any) -> str:
    name = one.metavar or one.name.upper()
    name = f"{name} …" if one.nargs != 1 else name
    return name if one.required else f"[{name}]"


def _is_option(one: Any) -> bool:
    return bool(one.param_type_name == "option")


def _row(one: Any) -> tuple[str, str]:
    plain = isinstance(one.default, str | int | float) and not isinstance(one.default, bool)
    default = f"; default `{one.default}`" if plain and one.default != "" else ""
    return ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts)), _line(
        one.help
    ) + default


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def _paths() -> str:
    """Return the table of the HTTP API's paths, as its OpenAPI document has them."""
    rows = [
        (
            f"`{method.upper()} /api{path}`",
            one["x-tag"] or "",
            one.get("summary", "").replace(":.", "."),
        )
        for path, methods in openapi.document(TABLE.routes)["paths"].items()
        for method, one in methods.items()
    ]
    return _table(("request", "tag of the user", "what it does"), rows)


def _client() -> str:
    """Return a section for each public class of `warren` with its calls."""
    parts = []
    for name in warren.__all__:
        one = getattr(warren, name)
        parts += [f"## {name}", f"```python\n{name}{_signature(one)}\n```", _doc(one)]
        for called, value in vars(one).items():
            if called.startswith("_") or not inspect.getdoc(value):
                continue
            if inspect.isfunction(value):
                parts += [f"### {name}.{called}", f"```python\n{called}{_signature(value)}\n```"]
                parts.append(_doc(value))
            elif isinstance(value, property):
                parts += [f"### {name}.{called}", _doc(value)]
    return "\n\n".join(parts)


def _signature(one: Any) -> str:
    """Return the parameters as they are written, without `self`."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(one)))
    return text.replace("(self, ", "(").replace("(self)", "()")


def _doc(one: Any) -> str:
    """Return a docstring as Markdown: what is aligned below its first paragraph stays so."""
    first, _, rest = (inspect.getdoc(one) or "").partition("\n\n")
    return first + (f"\n\n```text\n{rest}\n```" if rest else "")


MAKERS: Final[dict[str, Callable[[], str]]] = {
    "options-both": lambda: _options("both"),
    "options-read": lambda: _options("read"),
    "options-write": lambda: _options("write"),
    "conditions": _conditions,
    "commands": _commands,
    "http-paths": _paths,
    "client": _client,
}
"""Name of a part → what makes its Markdown."""


def made(name: str) -> str:
    """Return the Markdown of a part."""
    return MAKERS[name]()
