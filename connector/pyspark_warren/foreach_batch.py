"""Functions for `foreachBatch`: their output has each batch once, however often Spark runs it.

Spark runs a batch again where it ended between the output's commit and its own log. The rows are
the same then, because they are a claim's; so each function here makes the repeat one without
effect.

    rows.writeStream.foreachBatch(append_to_delta("/lake/orders")).option("checkpointLocation", …)
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark_warren.batches.current import local_properties
from pyspark_warren.errors import SchemaError, UnsupportedError
from pyspark_warren.surroundings import QUERY_ID

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

OneBatch: TypeAlias = "Callable[[DataFrame, int], None]"
"""What `foreachBatch` takes: a batch's rows, and its number."""


def query_of(rows: DataFrame) -> str:
    """Return the id of the query that calls, the one in its checkpoint; raises UnsupportedError."""
    found: str | None = local_properties(rows.sparkSession)[0](QUERY_ID)
    if found is None:
        raise UnsupportedError(
            "append_to_delta: the session does not tell which query calls, and a batch's number "
            "alone is not unique: call it by foreachBatch or a loop of batches, and with Spark "
            'Connect use writeStream.format("delta") or merge'
        )
    return found


def append_to_delta(table: str, **options: str) -> OneBatch:
    """Append each batch to a Delta table, in one transaction.

    Delta's log has the number of the last batch of each query, and passes over a batch that it has.

    table    a path, if it has a /, or a name of the catalog
    options  more of Delta's, such as mergeSchema="true"
    """

    def append(rows: DataFrame, number: int) -> None:
        writer = rows.write.format("delta").mode("append").options(**options)
        writer = writer.option("txnAppId", query_of(rows)).option("txnVersion", str(number))
        if "/" in table:
            writer.save(table)
        else:
            writer.saveAsTable(table)

    return append


def merge(table: str, key: Sequence[str], newest: str = "", deleted: str = "") -> OneBatch:
    """Merge each batch into a table of Delta, Iceberg or another that knows MERGE.

    A repeat finds its rows there. Without `newest` a key's first row stays: with the message id as
    key each message is in the table once. With it a key has the row of the highest `newest`.

    table    as in SQL; "delta.`/a/path`" for a path
    key      columns that name a row
    newest   column by which the newer of two rows of one key is known, as changes have it; of rows
             with the same value the one in the table stays
    deleted  boolean column: true removes the key's row. An older row that comes later is inserted:
             give a key's messages one queue, which keeps their order
    raises   SchemaError  the rows have no such column
    """
    on = " AND ".join(f"t.`{name}` <=> s.`{name}`" for name in key)
    clauses = []
    if newest:
        newer = f"s.`{newest}` > t.`{newest}`"
        if deleted:
            clauses.append(f"WHEN MATCHED AND {newer} AND s.`{deleted}` THEN DELETE")
        clauses.append(f"WHEN MATCHED AND {newer} THEN UPDATE SET *")
    clauses.append(f"WHEN NOT MATCHED{f' AND NOT s.`{deleted}`' if deleted else ''} THEN INSERT *")
    does = f"AS s ON {on} {' '.join(clauses)}"

    def merge_batch(rows: DataFrame, number: int) -> None:
        wanted = [*key, *(name for name in (newest, deleted) if name)]
        _check(rows, wanted)
        # Loops of batches in threads share a session, and so its views.
        view = f"warren_batch_{uuid.uuid4().hex}"
        _one_of_each(rows, key, newest).createOrReplaceTempView(view)
        try:
            rows.sparkSession.sql(f"MERGE INTO {table} AS t USING {view} {does}")
        finally:
            rows.sparkSession.catalog.dropTempView(view)

    return merge_batch


def _one_of_each(rows: DataFrame, key: Sequence[str], newest: str) -> DataFrame:
    """Return one row of each key: MERGE refuses two."""
    if not newest:
        return rows.dropDuplicates(list(key))
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    place = F.row_number().over(Window.partitionBy(*key).orderBy(F.col(newest).desc()))
    return rows.withColumn("warren_place", place).where("warren_place = 1").drop("warren_place")


def insert(
    connect: Callable[[], Any],
    table: str,
    key: Sequence[str],
    update: bool = False,
    value: str = "%s",
) -> OneBatch:
    """Insert each batch into a table of PostgreSQL or SQLite, from Spark's tasks.

    Each partition is a transaction. A repeat, or another attempt of a task, finds its rows there:
    the table has a unique index over `key`, such as the message id.

    connect  opens a connection of Python's DB-API; it is pickled, and called in each task
    update   the row that is there gets the new one's values; else it stays
    value    what stands for a value: `%s` for psycopg, `?` for sqlite3
    raises   SchemaError  the rows have no such column
    """

    def insert_batch(rows: DataFrame, number: int) -> None:
        _check(rows, key)
        names = ", ".join(f'"{name}"' for name in rows.columns)
        values = ", ".join(value for _ in rows.columns)
        others = [f'"{name}" = excluded."{name}"' for name in rows.columns if name not in key]
        does = f"UPDATE SET {', '.join(others)}" if update and others else "NOTHING"
        unique = ", ".join(f'"{name}"' for name in key)
        statement = (
            f"INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT ({unique}) DO {does}"
        )
        rows.mapInArrow(partial(_inserted, connect, statement), "rows bigint").collect()

    return insert_batch


def _inserted(
    connect: Callable[[], Any], statement: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Insert a partition's rows in one transaction; yield nothing."""
    connection = connect()
    try:
        cursor = connection.cursor()
        for batch in batches:
            found = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            cursor.executemany(statement, list(found))
        connection.commit()
    finally:
        connection.close()
    yield from ()


def _check(rows: DataFrame, wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in rows.columns]
    if missing:
        raise SchemaError(
            f"the batch has no column {', '.join(missing)} (it has {', '.join(rows.columns)}): "
            "select it, or name another"
        )
