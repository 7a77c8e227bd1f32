"""Predicates that `spark.read` applies: as Spark would, and before bodies are fetched."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as sql
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType
from spark_world.fake import FakeBroker, FakeClient

from pyspark_warren.claims.plan import SPANS_MAX, ViewPiece, spans
from pyspark_warren.datasource import WarrenDataSource
from pyspark_warren.errors import UnsupportedError
from pyspark_warren.options.options import Options, parse_options
from pyspark_warren.rows.columns import STATE_COLUMNS
from pyspark_warren.rows.decode import ARROW_TYPES, PLAIN_TYPES
from pyspark_warren.rows.predicates import pushed
from pyspark_warren.table import PushedBatchReader, WarrenBatchReader, narrowed
from warren.errors import Conflict
from warren.views import ViewedBlock
from warren_wire.block.layout import AREA_BODIES

DAY: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
PLAIN: Final = from_arrow_schema(pa.schema(list(ARROW_TYPES.items())))
SCHEMA: Final = from_arrow_schema(
    pa.schema(
        [*ARROW_TYPES.items(), *((name, PLAIN_TYPES[ddl]) for name, ddl in STATE_COLUMNS.items())]
    )
)
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "type": st.sampled_from(["", "a", "ab", "b", "ä", "z", "\U0001f407", "\uffff"]),
    "priority": st.integers(-2, 2),
    "claim": st.integers(-2, 2) | st.just(2**63 - 1),
    "redelivered": st.booleans(),
    "timestamp": st.integers(-2, 2).map(lambda n: DAY + timedelta(microseconds=n)),
}
ARROW: Final = {
    "type": pa.string(),
    "priority": pa.int32(),
    "claim": pa.int64(),
    "redelivered": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
ORDERED: Final = (sql.GreaterThan, sql.GreaterThanOrEqual, sql.LessThan, sql.LessThanOrEqual)
TEXTS: Final = (sql.StringStartsWith, sql.StringEndsWith, sql.StringContains)


def by_the_book(each: Any, row: dict[str, Any]) -> bool | None:
    """SQL's three values of a filter for a row."""
    if isinstance(each, sql.Not):
        found = by_the_book(each.child, row)
        return None if found is None else not found
    value = row[each.attribute[0]]
    match each:
        case sql.IsNull():
            return value is None
        case sql.IsNotNull():
            return value is not None
        case sql.EqualNullSafe():
            return bool(value == each.value)
        case sql.In():
            if value is None:
                return None
            return True if value in each.value else (None if None in each.value else False)
    if value is None or each.value is None:
        return None
    if isinstance(value, str):
        # Spark compares the bytes of UTF-8.
        value, other = value.encode(), each.value.encode()
    else:
        other = each.value
    match each:
        case sql.EqualTo():
            return bool(value == other)
        case sql.GreaterThan():
            return bool(value > other)
        case sql.GreaterThanOrEqual():
            return bool(value >= other)
        case sql.LessThan():
            return bool(value < other)
        case sql.LessThanOrEqual():
            return bool(value <= other)
        case sql.StringStartsWith():
            return bool(value.startswith(other))
        case sql.StringEndsWith():
            return bool(value.endswith(other))
        case sql.StringContains():
            return other in value
    raise AssertionError(each)


@st.composite
def filters(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(VALUES)))
    one = VALUES[name]
    kinds: list[Any] = [sql.EqualTo, sql.EqualNullSafe, sql.In, sql.IsNull, sql.IsNotNull, *ORDERED]
    kind = draw(st.sampled_from(kinds + list(TEXTS) * (name == "type")))
    if kind in (sql.IsNull, sql.IsNotNull):
        made = kind((name,))
    elif kind is sql.In:
        made = kind((name,), tuple(draw(st.lists(one | st.none(), min_size=1, max_size=3))))
    else:
        made = kind((name,), draw(one if kind in TEXTS else one | st.none()))
    return sql.Not(made) if draw(st.booleans()) else made


ROWS: Final = st.lists(
    st.fixed_dictionaries({name: one | st.none() for name, one in VALUES.items()}), max_size=8
)


@given(ROWS, st.lists(filters(), max_size=3))
def test_rows_are_kept_that_sql_keeps(rows: list[dict[str, Any]], each: list[Any]) -> None:
    predicates, left = pushed(each, SCHEMA)
    assert left == []
    table = pa.RecordBatch.from_pylist(rows, pa.schema(list(ARROW.items())))
    mask = predicates.mask(table).to_pylist()
    assert mask == [all(by_the_book(one, row) is True for one in each) for row in rows]


@pytest.mark.parametrize(
    "each",
    [
        sql.EqualTo(("body",), b"x"),
        sql.IsNotNull(("headers",)),
        sql.IsNull(("position",)),
        sql.EqualTo(("position", "offset"), 1),
        sql.EqualTo(("elsewhere",), 1),
        sql.EqualTo(("priority",), 1.0),
        sql.EqualTo(("priority",), True),
        sql.EqualTo(("priority",), 2**31),
        sql.EqualTo(("timestamp",), DAY.replace(tzinfo=None)),
        sql.In(("priority",), ()),
        sql.StringContains(("priority",), "1"),
        sql.Not(sql.Not(sql.EqualTo(("priority",), 1))),
        sql.EqualTo(("type", "x"), "a"),
    ],
)
def test_what_is_not_known_to_be_exact_is_left_to_spark(each: Any) -> None:
    kept = sql.EqualTo(("priority",), 1)
    predicates, left = pushed([each, kept], SCHEMA)
    assert len(left) == 1 and left[0] is each and len(predicates.each) == 1


def test_text_with_a_collation_is_left_to_spark() -> None:
    schema = StructType([StructField("type", StringType("UTF8_LCASE"))])
    assert pushed([sql.EqualTo(("type",), "A")], schema)[1] == [sql.EqualTo(("type",), "A")]


INDEX: Final = ("position", "index")


@given(
    st.lists(
        st.builds(
            lambda kind, value: kind(INDEX, (value, None) if kind is sql.In else value),
            st.sampled_from([sql.EqualTo, sql.In, sql.EqualNullSafe, *ORDERED]),
            st.integers(0, 9) | st.none(),
        ).flatmap(lambda made: st.sampled_from([made, sql.Not(made)])),
        max_size=3,
    )
)
def test_a_range_of_positions_leaves_out_only_what_is_not_kept(each: list[Any]) -> None:
    predicates, left = pushed(each, SCHEMA)
    first, last = predicates.index_range()
    place = pa.array([{"index": n, "ordinal": 0} for n in range(12)])
    mask = predicates.mask(pa.record_batch({"position": place})).to_pylist()
    assert left == [] and all(first <= n <= last for n in range(12) if mask[n])


def options(**more: str) -> Options:
    return parse_options({"queue": "q", "pushFilters": "once", **more}, "read", "batch")


def test_ranges_and_states_are_narrowed_by_options_and_predicates_together() -> None:
    both, _ = pushed(
        [sql.GreaterThan(INDEX, 5), sql.In(("state",), ("held", "dead", "ready"))], SCHEMA
    )
    found = narrowed(options(state="ready,held,claimed", firstIndex="3", lastIndex="40"), both)
    assert (found.first_index, found.last_index, found.states) == (6, 40, ("ready", "held"))
    given_first = options(maxMessages="7", state="all")
    assert narrowed(given_first, both) == given_first


@given(st.sets(st.integers(0, 100)))
def test_spans_hold_every_index_and_are_cut_at_the_widest_gaps(indexes: set[int]) -> None:
    found = spans(indexes)
    assert len(found) <= SPANS_MAX
    assert all(any(low <= n <= high for low, high in found) for n in indexes)
    assert {n for span in found for n in span} <= indexes
    assert all(high + 1 < low for (_, high), (low, _) in pairwise(found))


class Watched(FakeClient):
    """Notes what is fetched: first index, last and areas."""

    scattered = False

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self.seen: list[tuple[int, int, int | None]] = []

    def view(
        self, queue: str, states: Any, piece: ViewPiece, times: bool, areas: int | None
    ) -> Iterator[ViewedBlock]:
        self.seen.append((piece.first, piece.last, areas))
        yield from super().view(queue, states, piece, times, areas)

    def view_edges(self, queue: str, states: Any, pieces: int) -> list[int]:
        if self.scattered:
            raise Conflict("too scattered")
        return super().view_edges(queue, states, pieces)


def filled() -> Watched:
    """Twelve blocks of four messages; a block's priority is its number modulo 4."""
    broker = FakeBroker()
    broker.declare("q")
    for block in range(12):
        broker.publish("q", [b"%d-%d" % (block, n) for n in range(4)], block % 4)
    return Watched.local(broker)  # type: ignore[return-value]


def bodies(reader: WarrenBatchReader) -> list[bytes]:
    rows = [rows for part in reader.partitions() for rows in reader.read(part)]
    return sorted(body for batch in rows for body in batch.column("body").to_pylist())


STATEFUL: Final[list[Any]] = [
    sql.EqualTo(("state",), "dead"),
    sql.EqualTo(("state",), "ready"),
]
PREDICATES: Final[list[list[Any]]] = [
    [],
    [sql.EqualTo(("priority",), 1)],
    [sql.Not(sql.EqualTo(("priority",), 1))],
    [sql.IsNull(("priority",))],
    [sql.IsNotNull(("type",))],
    [sql.LessThan(INDEX, 5), sql.GreaterThan(INDEX, 1)],
    [sql.EqualTo(INDEX, 10**9)],
    [sql.LessThan(INDEX, 0)],
    [sql.EqualTo(("position", "ordinal"), 2), sql.In(("priority",), (0, 3, None))],
    STATEFUL[:1],
    [STATEFUL[1], sql.EqualTo(("priority",), 2)],
    [sql.EqualTo(("queue",), "q"), sql.EqualTo(("redelivered",), False)],
]


@pytest.mark.parametrize("more", [{}, {"maxMessages": "7"}, {"mode": "dropmalformed"}])
@pytest.mark.parametrize("scattered", [False, True])
@pytest.mark.parametrize("each", PREDICATES, ids=range(len(PREDICATES)))
def test_pushed_or_not_the_rows_are_the_same(
    each: list[Any], scattered: bool, more: dict[str, str]
) -> None:
    # Without the columns of states the read is a plain one, which continues where it is scattered.
    schema = PLAIN if scattered else SCHEMA
    each = [one for one in each if not scattered or one not in STATEFUL]
    client = filled()
    client.scattered = scattered
    reader = PushedBatchReader(options(**more), schema, lambda _: client)
    assert list(reader.pushFilters(each)) == []
    plain = WarrenBatchReader(options(**more), schema, lambda _: client)
    predicates, _ = pushed(each, schema)
    wanted = [
        row["body"]
        for part in plain.partitions()
        for rows in plain.read(part)
        for row in rows.filter(predicates.mask(rows)).to_pylist()
    ]
    assert bodies(reader) == sorted(wanted)


@pytest.mark.parametrize("given", [{}, {"filter": "h.priority = 1"}], ids=["pushed", "filter"])
def test_bodies_are_fetched_only_where_a_message_is_kept(given: dict[str, str]) -> None:
    client = filled()
    schema = StructType([PLAIN["body"], PLAIN["priority"]])
    reader: WarrenBatchReader
    if given:
        given_options = parse_options({"queue": "q", **given}, "read", "batch")
        reader = WarrenBatchReader(given_options, schema, lambda _: client)
        # Spark asks for its setting when a reader has a method of its own.
        assert type(reader).pushFilters is sql.DataSourceReader.pushFilters
    else:
        reader = PushedBatchReader(options(), schema, lambda _: client)
        assert list(reader.pushFilters([sql.EqualTo(("priority",), 1)])) == []
    assert len(bodies(reader)) == 12
    with_bodies = [
        (first, last) for first, last, areas in client.seen if (areas or 0) & AREA_BODIES
    ]
    indexes = client._call("ready_indexes", "q")
    assert with_bodies == [(indexes[n], indexes[n] + 1) for n in (1, 5, 9)]
    assert [areas for _, _, areas in client.seen if not (areas or 0) & AREA_BODIES] == [0] * 6


def test_a_later_action_on_a_frame_did_not_see_what_was_published_since() -> None:
    broker = FakeBroker()
    broker.declare("q")
    client = Watched.local(broker)
    plain = WarrenBatchReader(
        parse_options({"queue": "q"}, "read", "batch"), PLAIN, lambda _: client
    )
    planned = plain.partitions()
    broker.publish("q", [b"a"])
    assert [rows.num_rows for part in planned for rows in plain.read(part)] == [1]
    planned = plain.partitions()
    broker.publish("q", [b"b"])
    assert sum(rows.num_rows for part in planned for rows in plain.read(part)) == 2


def test_pushing_is_refused_where_spark_mixes_up_the_uses_of_a_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = {"queue": "q", "broker": "warren"}

    def reader(**more: str) -> Any:
        return WarrenDataSource({**given, **more}).reader(PLAIN)

    assert type(reader()) is WarrenBatchReader
    assert type(reader(filter="h.priority = 1")) is WarrenBatchReader
    assert type(reader(pushFilters="once", filter="h.priority = 1")) is PushedBatchReader
    with pytest.raises(UnsupportedError, match="a frame that is used twice would lose rows; give"):
        reader(pushFilters="true")
    monkeypatch.setattr("pyspark_warren.datasource.FILTERS_BY_SCAN", True)
    assert type(reader(pushFilters="true")) is PushedBatchReader


def test_a_predicate_over_bodies_of_text_is_applied_in_one_look() -> None:
    client = filled()
    schema = StructType([StructField("body", StringType()), PLAIN["priority"]])
    reader = PushedBatchReader(options(), schema, lambda _: client)
    assert list(reader.pushFilters([sql.StringStartsWith(("body",), "7-")])) == []
    rows = [rows for part in reader.partitions() for rows in reader.read(part)]
    assert sorted(body for one in rows for body in one.column("body").to_pylist()) == [
        f"7-{n}" for n in range(4)
    ]
    assert len({(first, last) for first, last, _ in client.seen}) == len(client.seen)


def test_what_is_outside_a_range_of_positions_is_not_looked_at() -> None:
    client = filled()
    reader = PushedBatchReader(options(), SCHEMA, lambda _: client)
    indexes = client._call("ready_indexes", "q")
    assert list(reader.pushFilters([sql.EqualTo(INDEX, indexes[3])])) == []
    assert len(bodies(reader)) == 4
    assert {(first, last) for first, last, _ in client.seen} == {(indexes[3], indexes[3] + 1)}
