"""The DataFrame of a batch, on every Spark that has `mapInArrow`: 3.4 and later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import LongType, StructType

from pyspark_warren.errors import SchemaError, told_rows
from pyspark_warren.options.options import Options
from pyspark_warren.rows.columns import CORRUPT_DDL, HEADERS_DDL, HEADERS_TEXT_DDL, schema_ddl
from pyspark_warren.rows.decode import ARROW_TYPES, HEADERS_TEXT, PLAIN_TYPES
from pyspark_warren.rows.rows import check_schema
from pyspark_warren.source_reading import SourceReading

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEYS: Final = "headers_keys"
_VALUES: Final = "headers_values"
_TYPES: Final = {
    **PLAIN_TYPES,
    HEADERS_DDL.replace(", ", ",").replace(": ", ":"): ARROW_TYPES["headers"],
    HEADERS_TEXT_DDL.replace(", ", ","): HEADERS_TEXT,
    "struct<index:bigint,ordinal:bigint>": ARROW_TYPES["position"],
}
"""Arrow types by the text of Spark's."""


def columns_of(spark: SparkSession, options: Options, schema: StructType | str | None) -> Any:
    """Return the columns as Spark's type: those of `schema`, or all of a message."""
    if isinstance(schema, StructType):
        return schema
    if schema is None:
        schema = schema_ddl(options.header_values == "string")
        if options.corrupt is not None:
            schema += f", `{options.corrupt}` {CORRUPT_DDL}"
    return spark.createDataFrame([], schema).schema


def arrow_columns(columns: StructType, corrupt: str | None) -> pa.Schema:
    """Return the columns as Arrow's types; raises SchemaError. PySpark 3.4 cannot nest them."""
    kinds: Mapping[str, str] = {each.name: each.dataType.simpleString() for each in columns}
    for name, kind in kinds.items():
        if kind not in _TYPES:
            raise SchemaError(f"column {name}: the schema says {kind}, which no column is")
    made = pa.schema([(name, _TYPES[kind]) for name, kind in kinds.items()])
    check_schema(made, corrupt)
    return made


def frame_of(
    spark: SparkSession, reading: SourceReading, columns: StructType, tasks: Sequence[Any]
) -> DataFrame:
    """Return the rows of a batch: lazy, and the same ones whenever they are computed.

    Each number of a range is a task. The tasks are sent with the function that does them.
    """
    flat = not _nests()
    wanted = _flat_ddl(columns) if flat else columns

    @told_rows
    def fetch(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in reading.rows(tasks[number]):
                    yield flattened(rows) if flat else rows

    fetch.__annotations__ = {}  # of this module, which some PySpark would evaluate elsewhere
    numbers = spark.range(0, len(tasks), 1, max(1, len(tasks)))
    made = numbers.mapInArrow(fetch, wanted)
    return made.select(*map(_whole, columns)) if flat else made


# ------------------------------------------------------------------ PySpark 3.4


def _nests() -> bool:
    """Return whether this PySpark can have structs in a column that a function makes."""
    inner = StructType().add("index", LongType())
    try:
        to_arrow_type(StructType().add("position", inner))
    except TypeError:
        return False
    return True


def _flat_ddl(columns: StructType) -> str:
    parts = []
    for each in columns:
        kind = each.dataType.simpleString()
        if kind.startswith("struct<"):
            parts.append(f"`{each.name}` array<{kind}>")
        elif kind.startswith("map<string,struct<"):
            parts.append(f"{_KEYS} array<string>, {_VALUES} array<{kind[len('map<string,') : -1]}>")
        else:
            parts.append(f"`{each.name}` {kind}")
    return ", ".join(parts)


def flattened(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with lists in the place of structs and maps of structs, without a copy."""
    made: dict[str, pa.Array] = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if pa.types.is_struct(field.type):
            offsets = pa.array(range(len(column) + 1), pa.int32())
            made[field.name] = pa.ListArray.from_arrays(offsets, column)
        elif pa.types.is_map(field.type) and pa.types.is_struct(field.type.item_type):
            # The offsets are those of the whole array, of which a slice has a part.
            whole = pa.concat_arrays([column]) if column.offset else column
            for name, part in ((_KEYS, whole.keys), (_VALUES, whole.items)):
                made[name] = pa.ListArray.from_arrays(whole.offsets, part, mask=whole.is_null())
        else:
            made[field.name] = column
    return pa.RecordBatch.from_pydict(made)


def _whole(field: Any) -> Any:
    kind = field.dataType.simpleString()
    if kind.startswith("struct<"):
        return sql.col(field.name)[0].alias(field.name)
    if kind.startswith("map<string,struct<"):
        return sql.map_from_arrays(_KEYS, _VALUES).alias(field.name)
    return sql.col(field.name)
