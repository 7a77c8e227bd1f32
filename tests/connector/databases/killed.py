"""The ETL of examples/, as its command runs it, in a process that ends where it is told to.

    python -m databases.killed WHERE DIRECTORY DATABASE

WHERE: `parquet`, after the batch's files; `rows`, inside the transaction, with the rows inserted;
`commit`, after the transaction, before Spark knows of it; `never`. A kill needs a batch with rows.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from tools.environment import ROOT

KILLED = 9
"""The exit status of a process that was ended here."""
WHERE = ("parquet", "rows", "commit")


class Ending:
    """A database connection; the process ends before its commit of rows.

    inserted  whether rows were inserted since the last commit
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.inserted = False

    def cursor(self) -> Any:
        """Return the ending cursor of this connection."""
        return EndingCursor(self, self._connection.cursor())

    def commit(self) -> None:
        """Commit, unless rows were inserted."""
        if self.inserted:
            os._exit(KILLED)
        self._connection.commit()

    def close(self) -> None:
        """Close."""
        self._connection.close()


class EndingCursor:
    """A cursor that tells its connection of rows inserted."""

    def __init__(self, owner: Ending, cursor: Any) -> None:
        self._owner, self._cursor = owner, cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def executemany(self, statement: str, rows: Any) -> None:
        """Insert rows, and count them."""
        found = list(rows)
        self._cursor.executemany(statement, found)
        self._owner.inserted = bool(found)


def etl() -> ModuleType:
    """Return the module examples/etl/etl.py."""
    spec = importlib.util.spec_from_file_location("etl", ROOT / "examples" / "etl" / "etl.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def end_at(job: Any, where: str) -> None:
    """Have the process end there."""
    parquet, sql, connect = job.write_parquet, job.write_sql, job.connect

    def write_parquet(orders: Any, *more: Any) -> None:
        parquet(orders, *more)
        if not orders.isEmpty():
            os._exit(KILLED)

    def write_sql(orders: Any, *more: Any) -> None:
        sql(orders, *more)
        if not orders.isEmpty():
            os._exit(KILLED)

    def connect_ending(database: str) -> tuple[Any, str]:
        connection, value = connect(database)
        return Ending(connection), value

    if where == "parquet":
        job.write_parquet = write_parquet
    elif where == "rows":
        job.connect = connect_ending
    elif where == "commit":
        job.write_sql = write_sql


if __name__ == "__main__":
    module = etl()
    end_at(module, sys.argv[1])
    sys.exit(module.main(sys.argv[2:]))
