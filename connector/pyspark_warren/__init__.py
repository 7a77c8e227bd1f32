"""Warren as a Spark Structured Streaming source or sink.

Spark imports every module named `pyspark_*` once to look for data sources, so this one is small:
the class is imported at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_warren.batches import for_each_batch, write_batch
    from pyspark_warren.datasource import WarrenDataSource as DefaultSource
    from pyspark_warren.figures import batch_log, observed, progress
    from pyspark_warren.table_function import register

__all__ = [
    "DefaultSource",
    "batch_log",
    "for_each_batch",
    "observed",
    "progress",
    "register",
    "write_batch",
]


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from pyspark_warren.datasource import WarrenDataSource

        return WarrenDataSource
    if name in ("batch_log", "observed", "progress"):
        from pyspark_warren import figures

        return getattr(figures, name)
    if name in ("for_each_batch", "write_batch"):
        from pyspark_warren import batches

        return getattr(batches, name)
    if name == "register":
        from pyspark_warren import table_function

        return table_function.register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
