"""What an executor has to install."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from spark_world.runs import PATH

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None  # importing it fails
import pyspark_warren
loaded = [
    importlib.import_module(module.name)
    for module in pkgutil.walk_packages(pyspark_warren.__path__, "pyspark_warren.")
    if not module.name.endswith("__main__")
]
print(len(loaded))
"""
IMPORTED = """
import sys
import pyspark.sql.datasource, pyspark.sql.types
before = set(sys.modules)
import pyspark_warren.datasource
load = set(sys.modules) - before
import pyspark_warren.source, pyspark_warren.claims.reading, pyspark_warren.claims.driver
import pyspark_warren.sink.sink
import pyarrow as pa
from pyspark_warren.rows.rows import ClaimedBlock, to_arrow
from warren_wire.block.block import Block, encode
block = Block.decode(encode([b"x"], [bytes(2)], (b"", b"q")))
types = {"body": pa.binary(), "routing_key": pa.string(), "message_id": pa.string()}
assert to_arrow(ClaimedBlock(block, [(1, 0, 0, 0, 0)], "q"), pa.schema(types)).num_rows == 1
print(*sorted(load))
print(*sorted(set(sys.modules) - before))
"""
WITHOUT_CLI = """
import sys
sys.modules["typer"] = None
from warren.cli import main
"""


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program with Warren's packages on its path."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(PATH)},
        timeout=120,
        check=False,
    )


def test_the_connector_imports_nothing_that_its_extra_does_not_install() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = {
        name: {re.split(r"[<>=\[]", one)[0].replace("-", "_") for one in wanted}
        for name, wanted in extras.items()
    }
    others = asked["cli"] | asked["broker"] | {"pandas", "numpy"}
    assert {"rich", "typer", "pydantic", "prometheus_client"} < others
    others -= asked["connector"] | {"warrenmq"}
    done = run(IMPORT_ALL, ",".join(sorted(others)))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 30


def test_the_command_names_the_extra_that_it_needs() -> None:
    done = run(WITHOUT_CLI)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines() == [
        "the command warren needs the package typer, which Spark's executors do not: "
        "pip install 'warrenmq[cli]'"
    ]


def test_a_node_names_the_extra_that_it_needs() -> None:
    for name in ("pydantic", "re2"):
        done = run(f"import sys; sys.modules[{name!r}] = None; import warren_broker.__main__")
        assert done.returncode == 1
        assert done.stderr.strip().splitlines() == [
            f"a node needs the package {name}, which clients do not: pip install 'warrenmq[broker]'"
        ]


def test_a_plain_query_imports_little() -> None:
    """Each query imports the package in three processes one after the other, of Spark's Python."""
    load, driver = (set(line.split()) for line in run(IMPORTED).stdout.splitlines())
    unused = {"pandas", "pyarrow.compute", "http.client", "warren.admin", "warren_wire.sql_filter"}
    assert "warren.connection" in driver and not driver & unused
    assert not load & {"pyarrow", "warren.connection", "warren_wire.kernel"}
