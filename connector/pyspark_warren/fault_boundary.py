"""Boundary to Spark: a named condition reaches the user without its traceback.

Spark's Python workers send an exception to the JVM as text: traceback, chained exceptions and all,
and the JVM puts its own text before it. For named conditions, which contain the remedy, the
traceback through Spark and the connector adds nothing; it is logged instead. Any other exception
is a bug and keeps its traceback.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from pyspark_warren.errors import WarrenSparkError

log = logging.getLogger("pyspark_warren")

_P = ParamSpec("_P")
_R = TypeVar("_R")
_T = TypeVar("_T")


def told(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a method that Spark calls: a named condition leaves it without traceback and causes."""

    @functools.wraps(call)
    def calling(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return call(*args, **kwargs)
        except WarrenSparkError as wrong:
            raise _alone(wrong) from None

    return calling


def told_rows(call: Callable[_P, Iterator[_T]]) -> Callable[_P, Iterator[_T]]:
    """Wrap a generator of rows, which Spark iterates, like `told`."""

    @functools.wraps(call)
    def calling(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        try:
            yield from call(*args, **kwargs)
        except WarrenSparkError as wrong:
            raise _alone(wrong) from None

    return calling


def _alone(wrong: WarrenSparkError) -> WarrenSparkError:
    log.debug("%s", wrong, exc_info=wrong)
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        # Spark's own switch (spark.sql.execution.pyspark.udf.hideTraceback.enabled), which its
        # worker reads when it writes an exception. The worker ends after that: no other exception
        # loses its traceback.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    return wrong
