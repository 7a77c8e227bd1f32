"""The jobs of examples/ into real databases and tables, killed at each step: each order once.

    python3 build.py databases
    python3 build.py databases postgresql delta airflow

Needs Debian's postgresql (initdb and pg_ctl in /usr/lib/postgresql/*/bin), and installs psycopg
into .warren/databases. For each database: orders in a queue of a real node, the command of the
example in a process that ends after the files, inside the transaction and after the transaction,
and once more to the end, with new orders before each start. Then each order must be in the table
and in the files once, and the queue empty.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet

from databases.examples import EXAMPLES
from databases.killed import KILLED, WHERE, etl
from databases.lakes import LAKES
from databases.servers import postgresql, sqlite
from tools import console
from tools.environment import LOGS, ROOT, STATE
from warren import Admin, Connection
from warren.local import LocalCluster

DRIVER = ("psycopg==3.3.9", "psycopg-binary==3.3.9")
PLACE = STATE / "databases"
ORDERS = 400
"""Orders published before each start."""
RUN_S_MAX = 600


def install_driver() -> None:
    """Put psycopg where this process and those it starts find it."""
    if not (PLACE / "psycopg").is_dir():
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
        wanted = ["--target", str(PLACE), "--no-deps", *DRIVER]
        if not console.quiet("installing psycopg", [*command, *wanted], LOGS / "databases-pip.log"):
            raise SystemExit("databases: psycopg could not be installed")
    sys.path.insert(0, str(PLACE))


DATABASES = {"sqlite": sqlite, "postgresql": postgresql}


def rows_in(job: Any, database: str) -> list[tuple[int, str, int]]:
    """Return the table's rows, by their number."""
    connection, _ = job.connect(database)
    with closing(connection):
        cursor = connection.cursor()
        cursor.execute('SELECT "order", customer, cents FROM orders ORDER BY "order"')
        return [tuple(row) for row in cursor.fetchall()]


def try_database(name: str, cluster: LocalCluster, directory: Path) -> list[str]:
    """Run the job with its kills; return what is wrong."""
    job, wrong = etl(), []
    env = dict(os.environ, WARREN_URI=cluster.uri)
    env["PYTHONPATH"] = os.pathsep.join([env.get("PYTHONPATH", ""), str(PLACE)])
    with DATABASES[name]() as database:
        for where in (*WHERE, "never"):
            job.publish(cluster.uri, ORDERS)
            command = [sys.executable, "-m", "databases.killed", where, str(directory), database]
            log = LOGS / f"databases-{name}-{where}.log"
            with log.open("wb") as output:
                code = subprocess.run(
                    command, env=env, cwd=ROOT, timeout=RUN_S_MAX, stdout=output, stderr=output
                ).returncode
            expected = 0 if where == "never" else KILLED
            console.say(f"   {name}, ended at {where}: exit {code}")
            if code != expected:
                wrong.append(f"{name}, {where}: exit {code}, not {expected}; see {log}")
        published = 4 * [(i, f"c{i % 7}", i * 10) for i in range(ORDERS)]
        wrong += _compared(f"{name}, table", published, rows_in(job, database))
    files = pyarrow.parquet.read_table(directory / "orders").to_pylist()
    found = [(row["order"], row["customer"], row["cents"]) for row in files]
    wrong += _compared(f"{name}, files", published, found)
    with Connection(cluster.uri) as connection:
        left = Admin(connection).queues.get("orders").messages
    return wrong + ([f"{name}: {left} messages are in the queue"] if left else [])


def _compared(what: str, published: list[Any], found: list[Any]) -> list[str]:
    lost, more = Counter(published) - Counter(found), Counter(found) - Counter(published)
    console.say(f"   {what}: {len(found)} rows, lost {lost.total()}, doubled {more.total()}")
    return [f"{what}: lost {lost.total()}, doubled {more.total()}"] if lost or more else []


def main() -> int:
    """Try those named, or all."""
    others = {**LAKES, **EXAMPLES}
    known = [*DATABASES, *others]
    parser = argparse.ArgumentParser(prog="build.py databases", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=" or ".join(known))
    names = parser.parse_args().names or known
    for name in names:
        if name not in known:
            parser.error(f"unknown name {name!r}; known: {', '.join(known)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    install_driver()
    wrong = []
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            with LocalCluster(1, place / "nodes") as cluster:
                if name in DATABASES:
                    wrong += try_database(name, cluster, place / "output")
                    continue
                try:
                    console.say(f"   {others[name](cluster, place)}")
                except AssertionError as failed:
                    wrong.append(f"{name}: {failed}")
    for each in wrong:
        console.say(f"WRONG {each}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
