"""Driver and executors with different versions of the connector: refused by name, before reading.

Replaced here is the version that an executor finds.
"""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.types import StructType

from pyspark_warren import versions
from pyspark_warren.errors import VersionsError
from pyspark_warren.options.options import parse_options
from pyspark_warren.sink.sink import WarrenStreamWriter
from pyspark_warren.source import QueryStreamReader, WarrenStreamReader, arrow_schema
from pyspark_warren.spool.reading import SpoolReading
from pyspark_warren.streams.batch_reader import OffsetBatchReader
from pyspark_warren.streams.reading import OffsetReading
from pyspark_warren.table import PushedBatchReader, WarrenBatchReader
from pyspark_warren.table_function import QueueTable

SCHEMA = StructType().add("body", "binary")
COLUMNS = arrow_schema(SCHEMA, None)
READ = parse_options({"queue": "q", "spoolLocation": "/nowhere"}, "read")
WRITE = parse_options({"routingKey": "q", "atomicBatch": "false"}, "write")


def connect(_: Any) -> Any:
    """Nothing is asked."""


CARRIED = {
    "stream": lambda: WarrenStreamReader(READ, SCHEMA, connect),
    "spool": lambda: QueryStreamReader(SpoolReading(READ, COLUMNS)),
    "offsets": lambda: QueryStreamReader(OffsetReading(READ, COLUMNS)),
    "table": lambda: WarrenBatchReader(READ, SCHEMA, connect),
    "pushed": lambda: PushedBatchReader(READ, SCHEMA, connect),
    "part of a stream": lambda: OffsetBatchReader(READ, SCHEMA),
    "sink": lambda: WarrenStreamWriter(WRITE, SCHEMA, connect),
    "table function": lambda: QueueTable(schema=SCHEMA, options={"queue": "q"}),
}


@pytest.mark.parametrize("made", CARRIED.values(), ids=CARRIED.keys())
def test_an_executor_of_another_version_names_both(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = made()
    carried = pickle.dumps(before)
    same = pickle.loads(carried)
    assert type(same) is type(before)
    assert same.__dict__.keys() == before.__dict__.keys()
    monkeypatch.setattr(versions, "VERSION", "0.0.1")
    with pytest.raises(VersionsError, match=r"\[WARREN_VERSIONS\].*has warrenmq .* has 0\.0\.1"):
        pickle.loads(carried)
