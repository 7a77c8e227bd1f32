"""The parts of the reference that the code has: text for `<!-- generated: NAME -->` in a page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from types import NoneType
from typing import Any, Final, Literal, get_args, get_origin

import typer
from prometheus_client.core import Metric
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import warren
from pyspark_warren import errors
from pyspark_warren.options.options import SPECS, options_table
from tools import http_keys
from warren.cli.app import app
from warren_broker.cluster.led_queues import NO_COUNTS
from warren_broker.config import ENVIRONMENT_PREFIX, AlarmSettings, NodeConfig
from warren_broker.counting.counters import SIZES
from warren_broker.counting.message_stats import COUNTED
from warren_broker.http import openapi
from warren_broker.http.routes import TABLE
from warren_broker.metrics import exposition
from warren_broker.metrics.detailed import GROUPS
from warren_broker.metrics.readings import (
    BrokerReading,
    CountedQueue,
    NodeReading,
    QueueReading,
    QueueWork,
    ReaderReading,
)
from warren_raft.measures import Histogram, RaftMeasures
from warren_raft.runtime.group import LogPosition
from warren_wire import admin
from warren_wire.admin.requests import AdminRequest, fields_in
from warren_wire.admin.resources import REQUESTS, SUBJECTS

UNSAID: Final = ("help", "uri")
"""Options of every command, which the page says once."""
FORMATS: Final = tuple(
    f"warren_wire.{name}" for name in ("block.layout", "amqp10.fetched", "amqp10.viewed")
) + tuple(
    f"warren_raft.storage.{name}"
    for name in ("format", "framed_file", "segment", "snapshot", "manifest")
    + ("synced_mark", "identity")
)
"""Modules of which the docstring is a format."""
_SIZES: Final = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
_TIMES: Final = {"d": 86_400_000, "h": 3_600_000}


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


def _settings() -> str:
    """Return a section for each table of a node's configuration, with its keys."""
    return "\n\n".join(_tables(NodeConfig, ""))


def tables(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield each table of a configuration below its parents, by name; "" is the top one."""
    yield path, model
    for key, field in model.model_fields.items():
        if not is_key(field):
            yield from tables(_kind(field), f"{path}.{key}" if path else key)


def is_key(field: FieldInfo) -> bool:
    """Return whether a field is a key, not a table."""
    return not (isinstance(kind := _kind(field), type) and issubclass(kind, BaseModel))


def _tables(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, table in tables(model, path):
        rows = [
            (f"`{key}`", _values(key, field), _default(key, field), field.description or "")
            for key, field in table.model_fields.items()
            if is_key(field)
        ]
        variable = f"`{ENVIRONMENT_PREFIX}{name.upper().replace('.', '__')}__…`"
        if rows:
            yield f"## {f'Table `{name}`' if name else 'Keys outside of tables'}"
            yield f"{_first(table)}" + (f" Variables: {variable}" if name else "")
            yield _table(("key", "values", "default", "meaning"), rows)


def _kind(field: FieldInfo) -> Any:
    """Return the type of a setting, of one that may be missing the type that it has otherwise."""
    parts = get_args(field.annotation)
    return parts[0] if NoneType in parts else field.annotation


def _values(key: str, field: FieldInfo) -> str:
    kind, bounds = _kind(field), dict[str, Any]()
    for one in field.metadata:
        bounds |= {name: getattr(one, name) for name in ("ge", "le") if hasattr(one, name)}
        if words := re.fullmatch(r"\^\(([\w|-]+)\)\$", getattr(one, "pattern", None) or ""):
            kind = Literal[tuple(words[1].split("|"))]
    if get_origin(kind) is Literal:
        return ", ".join(f"`{one}`" for one in get_args(kind))
    if "le" in bounds:
        return f"{_shown(key, bounds['ge'])} to {_shown(key, bounds['le'])}"
    if kind is int:
        return f"at least {_shown(key, bounds['ge'])}"
    names = {bool: "true, false", str: "text", tuple: "list", dict: "table"}
    return names.get(get_origin(kind) or kind, "path")


def _default(key: str, field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, tuple | dict):
        return ", ".join(f"`{one}`" for one in value) or "none"
    return "none" if value in (None, "") else f"`{_shown(key, value)}`"


def _shown(key: str, value: Any) -> str:
    """Return a number as people read it: bytes in their unit, long times in hours and days."""
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value).lower() if isinstance(value, bool) else str(value)
    units = _TIMES if key.endswith("_ms") else _SIZES if re.search("bytes|size_max", key) else {}
    for unit, size in units.items():
        if value and value % size == 0:
            return f"{value // size} {unit}"
    return str(value) if key == "port" else f"{value:,}"


def _metrics(*, per_object: bool) -> str:
    """Return the table of a node's metrics, or of those per object that are of a queue."""
    at = LogPosition(1, 2, 3, 4, 5)
    zero = Histogram(())
    fields = RaftMeasures.__dataclass_fields__
    kinds: dict[str, Any] = {
        name: zero if one.type == "Histogram" else 0 for name, one in fields.items()
    }
    measures = RaftMeasures(**{**kinds, "peers": {"connected": 0}})
    broker = BrokerReading(zero, zero, 0, 0, False, "compiled")
    sizes = {"amqp091": [0] * (len(SIZES) + 2)}
    reading = NodeReading(
        "a", "c", 1, {}, sizes, measures, broker, 0, 0, (), {}, 0, 0, definitions=at
    )
    if per_object:
        work = QueueWork(0, (ReaderReading("r", 0, 0, 0),), 0, 0, 0, None)
        reading.queues.append(QueueReading("/", "q", "quorum", at, NO_COUNTS, work))
        reading.counted.append(CountedQueue("/", "q", (0,) * len(COUNTED)))
    process = exposition.ProcessReading(0, 0, 0, 0, [], None, {})
    view = exposition.ScrapeView("", per_object)
    rows = map(_of_metric, exposition.Readings(reading, process, AlarmSettings(), view).collect())
    of_objects = ("`queue`", "`channel`", "`exchange`")
    shown = (row for row in rows if not per_object or any(one in row[2] for one in of_objects))
    return _table(("metric", "kind", "labels", "meaning"), shown)


def _of_metric(metric: Metric) -> tuple[str, ...]:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    names = dict.fromkeys(label for one in metric.samples for label in one.labels)
    labels = names or dict.fromkeys(getattr(metric, "_labelnames", ()))
    return f"`{name}`", metric.type, ", ".join(f"`{one}`" for one in labels), metric.documentation


def _groups() -> str:
    """Return the table of the words of `/metrics/detailed`."""
    rows = ((f"`{word}`", ", ".join(f"`{one}`" for one in names)) for word, names in GROUPS.items())
    return _table(("`family=`", "metrics, without `rabbitmq_` and `_total`"), rows)


def _management(*, answers: bool) -> str:
    """Return the table of requests to `/management`, or that of the values in their answers."""
    texts = {kind: _said(kind) for kind in REQUESTS if any(not one.http for one in kind.ROUTES)}
    if not answers:
        return _table(
            ("request", "fields", "what it does"), map(_of_request, texts, texts.values())
        )
    named = set(re.findall(r"\b[A-Z]\w+", " ".join(texts.values())))
    modules = (import_module(f"{admin.__name__}.{name}") for name in SUBJECTS)
    values = {name: one for module in modules for name, one in vars(module).items()}
    rows = (
        (name, ", ".join(f"`{field}`" for field in values[name].__struct_encode_fields__))
        for name in sorted(named & values.keys() - {"Listed", "Performed"})
    )
    return _table(("value", "fields"), rows)


def _said(kind: type[AdminRequest[Any]]) -> str:
    """Return a request's docstring without the list of its fields."""
    parts = [" ".join(part.split()) for part in (inspect.getdoc(kind) or "").split("\n\n")]
    return " ".join([parts[0], *(one for one in parts[1:] if one.startswith("Answer:"))])


def _of_request(kind: type[AdminRequest[Any]], text: str) -> tuple[str, str, str]:
    routes = [one for one in kind.ROUTES if not one.http]
    known = {name for one in routes for name in (*one.names, *one.fixed)}
    fields = (
        f"`{key}`" if field.required else f"[`{key}`]"
        for key, field in fields_in(kind).items()
        if key not in known
    )
    paths = "<br>".join(f"`{one.shown.replace('::', ':')}`" for one in routes)
    return paths, ", ".join(fields), text


def _formats() -> str:
    """Return a section for each module that owns a format: its docstring."""
    parts = []
    for name in FORMATS:
        title, _, text = (inspect.getdoc(import_module(name)) or "").partition("\n\n")
        parts += [f"## {re.split('[.:,]', title)[0]}", f"`{name}`", text]
    return "\n\n".join(parts)


MAKERS: Final[dict[str, Callable[[], str]]] = {
    "options-both": lambda: _options("both"),
    "options-read": lambda: _options("read"),
    "options-write": lambda: _options("write"),
    "conditions": _conditions,
    "commands": _commands,
    "http-paths": _paths,
    "http-keys": lambda: _table(("keys", "why they are missing"), http_keys.table()),
    "client": _client,
    "management": lambda: _management(answers=False),
    "management-answers": lambda: _management(answers=True),
    "formats": _formats,
    "settings": _settings,
    "metrics": lambda: _metrics(per_object=False),
    "metrics-per-object": lambda: _metrics(per_object=True),
    "metrics-detailed": _groups,
}
"""Name of a part → what makes its Markdown."""


def made(name: str) -> str:
    """Return the Markdown of a part."""
    return MAKERS[name]()
