"""What `pyspark_warren.foreach_batch` writes of a batch that is run again."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pyspark_warren.errors import SchemaError, UnsupportedError
from pyspark_warren.foreach_batch import _one_of_each, append_to_delta, insert, merge

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A database with an empty table of ids, numbers and words."""
    path = str(tmp_path / "rows.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute('CREATE TABLE rows (id TEXT PRIMARY KEY, "order" INTEGER, word TEXT)')
    return path


def rows_in(path: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM rows ORDER BY id").fetchall()


def batch(spark: Any, *rows: tuple[Any, ...]) -> Any:
    return spark.createDataFrame(list(rows), "id string, order bigint, word string")


@pytest.mark.parametrize(("update", "word"), [(False, "one"), (True, "other")])
def test_a_row_is_inserted_once_and_updated_when_asked(
    spark: Any, table: str, update: bool, word: str
) -> None:
    connect = partial(sqlite3.connect, table, timeout=60)
    one_batch = insert(connect, "rows", ["id"], update, "?")
    for _ in range(2):
        one_batch(batch(spark, ("a", 1, "one"), ("b", 2, "two")), 7)
    assert rows_in(table) == [("a", 1, "one"), ("b", 2, "two")]
    one_batch(batch(spark, ("a", 1, "other")), 8)
    assert rows_in(table)[0] == ("a", 1, word)


def test_of_two_changes_of_a_batch_the_newest_is_merged(spark: Any) -> None:
    rows = batch(spark, ("a", 1, "one"), ("a", 3, "three"), ("a", 2, "two"), ("b", 1, "b"))
    found = sorted(map(tuple, _one_of_each(rows, ["id"], "order").collect()))
    assert found == [("a", 3, "three"), ("b", 1, "b")]


def test_merges_of_one_session_do_not_share_a_view(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1. A loop has made its view.  2. Another loop makes its own.  3. The first one merges."""
    seen: list[str] = []
    plain = type(spark).sql

    def sql(session: Any, statement: str, *more: Any, **named: Any) -> Any:
        if not statement.startswith("MERGE"):
            return plain(session, statement, *more, **named)
        if not seen:
            seen.append("")
            merge("t", ["id"])(batch(spark, ("b", 2, "other")), 1)
        view = statement.split("USING ")[1].split()[0]
        seen.append(plain(session, f"SELECT id FROM {view}").collect()[0].id)
        return None

    monkeypatch.setattr(type(spark), "sql", sql)
    merge("t", ["id"])(batch(spark, ("a", 1, "one")), 1)
    assert seen == ["", "b", "a"]
    left = [each.name for each in spark.catalog.listTables() if each.name.startswith("warren_b")]
    assert left == []


def test_a_batch_of_no_query_is_not_appended(spark: Any) -> None:
    with pytest.raises(UnsupportedError, match="does not tell which query calls"):
        append_to_delta("/nowhere")(batch(spark, ("a", 1, "one")), 1)


def test_a_column_that_is_missing_is_named(spark: Any, table: str) -> None:
    rows = batch(spark, ("a", 1, "one"))
    for one_batch in (
        merge("t", ["number"]),
        insert(partial(sqlite3.connect, table), "rows", ["number"]),
    ):
        with pytest.raises(SchemaError, match="no column number.*it has id, order, word"):
            one_batch(rows, 1)
