"""Predicates that Spark pushes down to `spark.read`, with the semantics that Spark gives them.

A row is kept where every predicate is true. Null is Spark's: a comparison with it is null, its
negation too, and neither keeps the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from warren.views import EVERYTHING
from warren_wire.message_states import STATES

INDEX: Final = ("position", "index")
STATE: Final = ("state",)
_COMPARISONS: Final[dict[str, Callable[[object, object], object]]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}
_TEXT_TESTS: Final[dict[str, Callable[[object, str], object]]] = {
    "StringStartsWith": lambda values, part: pc.starts_with(values, part),
    "StringEndsWith": lambda values, part: pc.ends_with(values, part),
    "StringContains": lambda values, part: pc.match_substring(values, part),
}
_ARROW: Final[dict[type[DataType], tuple[type, pa.DataType]]] = {
    StringType: (str, pa.string()),
    IntegerType: (int, pa.int32()),
    LongType: (int, pa.int64()),
    BooleanType: (bool, pa.bool_()),
    TimestampType: (datetime, pa.timestamp("us", tz="UTC")),
}
"""Python type of a value to compare with, and Arrow type, by the Spark type of the column."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """One of Spark's filters over one column.

    path     of the column: its name, and a field's where it is a struct
    test     the name of Spark's class, such as GreaterThan
    value    an Arrow scalar or, of In, an array; null or with nulls where Spark gave None; text of
             the tests of strings; None of IsNull and IsNotNull
    negated  under Not
    """

    path: tuple[str, ...]
    test: str
    value: Any
    negated: bool

    def kept(self, values: pa.Array) -> pa.Array:
        """Return true, false or null for each value."""
        found = self._found(values)
        return pc.invert(found) if self.negated else found

    def _found(self, values: pa.Array) -> pa.Array:
        if self.test == "IsNull":
            return pc.is_null(values)
        if self.test == "IsNotNull":
            return pc.is_valid(values)
        if self.test in _TEXT_TESTS:
            return _TEXT_TESTS[self.test](values, self.value)
        if self.test == "EqualNullSafe":
            if not self.value.is_valid:
                return pc.is_null(values)
            return pc.fill_null(pc.equal(values, self.value), False)
        if self.test == "In":
            members = self.value.drop_null()
            found = pc.is_in(values, value_set=members)
            known = pc.is_valid(values)
            if len(members) < len(self.value):
                # Among others, the value may be the null: only what is found is known.
                known = found
            return pc.if_else(known, found, pa.scalar(None, pa.bool_()))
        return _COMPARISONS[self.test](values, self.value)


@dataclass(frozen=True, slots=True)
class Predicates:
    """Predicates of which all must be true."""

    each: tuple[Predicate, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """Return the names of the columns that they need."""
        return frozenset(one.path[0] for one in self.each)

    def mask(self, rows: pa.RecordBatch) -> pa.Array:
        """Return which rows are kept: true or false, never null."""
        masks = [one.kept(_column(rows, one.path)) for one in self.each]
        if not masks:
            return pa.array([True] * rows.num_rows, pa.bool_())
        return pc.fill_null(reduce(pc.and_kleene, masks), False)

    def states(self) -> tuple[str, ...]:
        """Return the states that a kept message can be in."""
        rows = pa.record_batch({"state": pa.array(STATES, pa.string())})
        mask = Predicates(tuple(one for one in self.each if one.path == STATE)).mask(rows)
        return tuple(rows.column("state").filter(mask).to_pylist())

    def index_range(self) -> tuple[int, int]:
        """Return first and last of a range of position.index, with every kept message in it."""
        first, last = 0, EVERYTHING - 1
        for one in self.each:
            if one.path != INDEX or one.negated:
                continue
            given = one.value.to_pylist() if one.test == "In" else [_python(one.value)]
            values = [value for value in given if value is not None]
            if not values:
                continue
            if one.test in ("EqualTo", "EqualNullSafe", "In", "GreaterThanOrEqual"):
                first = max(first, min(values))
            if one.test in ("EqualTo", "EqualNullSafe", "In", "LessThanOrEqual"):
                last = min(last, max(values))
            if one.test == "GreaterThan":
                first = max(first, values[0] + 1)
            if one.test == "LessThan":
                last = min(last, values[0] - 1)
        return first, last


def pushed(filters: Iterable[object], schema: StructType) -> tuple[Predicates, list[Any]]:
    """Return the predicates that are applied here, and the filters that Spark must apply.

    filters  objects of pyspark.sql.datasource, by the names of their classes: Spark 4.0 has none
    """
    taken, left = [], []
    for each in filters:
        made = _predicate(each, schema)
        if made is None:
            left.append(each)
        else:
            taken.append(made)
    return Predicates(tuple(taken)), left


def _predicate(given: Any, schema: StructType) -> Predicate | None:
    """Return the predicate of a filter; None: Spark must apply it."""
    negated = type(given).__name__ == "Not"
    inner = given.child if negated else given
    test = type(inner).__name__
    path = tuple(getattr(inner, "attribute", ()))
    kind = _type_of(schema, path)
    if kind not in _ARROW:
        return None
    if test in ("IsNull", "IsNotNull"):
        return Predicate(path, test, None, negated)
    python, arrow = _ARROW[kind]
    if test in _TEXT_TESTS:
        usable = kind is StringType and type(inner.value) is str
        return Predicate(path, test, inner.value, negated) if usable else None
    values = list(inner.value) if test == "In" else [getattr(inner, "value", None)]
    if not values or not all(value is None or _fits(value, python) for value in values):
        return None
    try:
        array = pa.array(values, arrow)
    except (pa.ArrowException, OverflowError):
        return None
    if test == "In":
        return Predicate(path, test, array, negated)
    return (
        Predicate(path, test, array[0], negated)
        if test in (*_COMPARISONS, "EqualNullSafe")
        else None
    )


def _fits(value: object, python: type) -> bool:
    """Return whether a value has exactly the type; a time without its zone is not one."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return False
    return type(value) is python


def _type_of(schema: StructType, path: tuple[str, ...]) -> type[DataType] | None:
    """Return the class of a column's type; None: no such column, or a collation of its own."""
    kind: DataType = schema
    for name in path:
        if not isinstance(kind, StructType) or name not in kind.names:
            return None
        kind = kind[name].dataType
    if type(kind) is StringType and not kind.isUTF8BinaryCollation():
        return None
    return type(kind)


def _column(rows: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    column = rows.column(rows.schema.get_field_index(path[0]))
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def _python(scalar: Any) -> Any:
    return None if scalar is None else scalar.as_py()
