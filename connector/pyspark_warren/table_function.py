"""The SQL table function `warren_queue`: a queue as a table, without a view for each queue.

Spark asks the function twice: `analyze`, where the statement is analysed, for the columns; `eval`,
in one task, for the rows. Both ask the data source of `spark.read`, which has the options, their
errors and the reading.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.functions import udtf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from pyspark_warren.datasource import WarrenDataSource
from pyspark_warren.errors import OptionError, SchemaError, told, told_rows
from pyspark_warren.options.options import parse_options
from pyspark_warren.options.reading import PUSH_NOTHING
from pyspark_warren.rows.columns import COLUMNS, HEADERS_TEXT_DDL, STATE_COLUMNS
from pyspark_warren.rows.decode import ARROW_TYPES, HEADERS_TEXT
from pyspark_warren.rows.rows import check_columns
from pyspark_warren.versions import OfOneVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _plain(ddl: str) -> str:
    """Return a type's text without what may be left out: Spark reads `index: bigint` without :."""
    return "".join(ddl.lower().replace(":", " ").split())


FUNCTION: Final = "warren_queue"
SCHEMA: Final = "schema"
"""The argument that is no option of the source: what `.schema(...)` is to `spark.read`."""
_DDL: Final = {**COLUMNS, **STATE_COLUMNS}
_TYPES: Final = {
    **{_plain(ddl): ARROW_TYPES[name] for name, ddl in COLUMNS.items()},
    _plain(HEADERS_TEXT_DDL): HEADERS_TEXT,
}
"""The Arrow types of columns by their Spark type, as `_plain` has it."""


@dataclass
class QueueTable(OfOneVersion, AnalyzeResult):
    """What the analysis of a call found: Spark hands it to the task that reads.

    options  of the data source, as texts
    """

    options: dict[str, str] = field(default_factory=dict)


class WarrenQueue:
    """The function's class for Spark; `source` is the data source that it asks."""

    source: type[WarrenDataSource] = WarrenDataSource

    def __init__(self, table: QueueTable) -> None:
        self._table = table

    @staticmethod
    def analyze(*unnamed: AnalyzeArgument, **named: AnalyzeArgument) -> QueueTable:
        """Return the columns; raises what `spark.read` raises at `.load()`."""
        return analysed(WarrenDataSource, unnamed, named)

    def eval(self, *unnamed: object, **named: object) -> Iterator[tuple[Any, ...]]:
        """Yield the rows; raises what `spark.read` raises in an action."""
        yield from rows_of(self.source, self._table)


def register(spark: SparkSession, name: str = FUNCTION) -> None:
    """Make `SELECT * FROM warren_queue(hosts => …, queue => …)` known to a session."""
    spark.udtf.register(name, udtf(WarrenQueue, useArrow=False))


@told
def analysed(
    source: type[WarrenDataSource],
    unnamed: tuple[AnalyzeArgument, ...],
    named: Mapping[str, AnalyzeArgument],
) -> QueueTable:
    """Return options and columns of a call."""
    if unnamed:
        raise OptionError(
            f"argument {len(unnamed)} of the table function has no name: write each option with "
            "its name, such as queue => 'flights'"
        )
    twice = _twice([name.lower() for name in named])
    if twice:
        raise OptionError(f"argument {twice} of the table function is given twice; leave one out")
    options = {name: _text(name, given) for name, given in named.items()}
    wanted = next((options.pop(name) for name in named if name.lower() == SCHEMA), None)
    parsed = parse_options(options, "read", "batch")
    if parsed.push_filters != PUSH_NOTHING:
        raise OptionError(
            f"option pushFilters={parsed.push_filters} means nothing with the table function: "
            "Spark offers it no predicates; give the option filter, or use a view"
        )
    found = struct_of(source(options).schema() if wanted is None else wanted)
    check_columns(found.names, parsed.corrupt, states=True)
    return QueueTable(schema=found, options=options)


def struct_of(ddl: str) -> StructType:
    """Return the columns of a DDL text, without a JVM, which an analysis does not have.

    ddl     `name type, name type`; a name alone has the type that the column has without a schema
    raises  SchemaError: a type that no column has
    """
    parts = [""]
    depth = 0
    for each in ddl:
        depth += (each == "<") - (each == ">")
        if each == "," and not depth:
            parts.append("")
        else:
            parts[-1] += each
    columns = [_field(part.strip()) for part in parts]
    twice = _twice([column.name for column in columns])
    if twice:
        raise SchemaError(f"argument schema names column {twice} twice; leave one out")
    return from_arrow_schema(pa.schema(columns))


def _twice(names: list[str]) -> str:
    """Return the first name that is there before; "": none is."""
    return next((name for i, name in enumerate(names) if name in names[:i]), "")


def _field(text: str) -> pa.Field:
    name, _, ddl = text.replace("`", "").partition(" ")
    if not name:
        raise SchemaError("argument schema has a column without a name; write name type, name type")
    wanted = ddl or _DDL.get(name, "binary")
    found = _TYPES.get(_plain(wanted))
    if found is None:
        own = _DDL.get(name)
        raise SchemaError(
            f"column {name}: the schema says {wanted}"
            + (f", it is {own}; say that, and cast it after reading" if own else "")
        )
    return pa.field(name, found)


def _text(name: str, given: AnalyzeArgument) -> str:
    if given.isTable or not given.isConstantExpression or given.value is None:
        found = (
            "a table" if given.isTable else "null" if given.isConstantExpression else "no constant"
        )
        raise OptionError(
            f"argument {name} of the table function is {found}; give a constant: a text, a number, "
            "true or false"
        )
    return str(given.value).lower() if isinstance(given.value, bool) else str(given.value)


@told_rows
def rows_of(source: type[WarrenDataSource], table: QueueTable) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table, in the order of the tasks that `spark.read` would have."""
    reader = source(table.options).reader(table.schema)
    for partition in reader.partitions():
        for batch in reader.read(partition):
            yield from zip(*map(values_of, batch.columns), strict=True)


def values_of(column: pa.Array) -> list[Any]:
    """Return a column's values as Spark takes them from Python: structs are tuples, maps dicts.

    `to_pylist` makes an object of Arrow's for each value of a map or struct, and a dict of each
    struct: it took half of the processor time of a row.
    """
    kind = column.type
    found: list[Any]
    if pa.types.is_struct(kind):
        found = list(zip(*map(values_of, column.flatten()), strict=True))
    elif pa.types.is_map(kind):
        edges = column.offsets.to_pylist()
        first, count = edges[0], edges[-1] - edges[0]
        keys = values_of(column.keys.slice(first, count))
        items = values_of(column.items.slice(first, count))
        found = [
            dict(zip(keys[at - first : end - first], items[at - first : end - first], strict=True))
            for at, end in itertools.pairwise(edges)
        ]
        if sum(map(len, found)) != count:  # a name is there twice, which raises
            found = column.to_pylist(maps_as_pydicts="strict")
    else:
        found = column.to_pylist()
        return found
    if not column.null_count:
        return found
    return [
        value if there else None
        for value, there in zip(found, column.is_valid().to_pylist(), strict=True)
    ]
