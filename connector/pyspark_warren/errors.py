"""Errors for Spark users: named conditions with their remedy, and how they reach the user.

Spark's Python workers send an exception to the JVM as text: traceback, chained exceptions and all,
and the JVM puts its own text before it. For named conditions, which contain the remedy, the
traceback through Spark and the connector adds nothing; it is logged instead (`told`). Any other
exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, ParamSpec, TypeVar

from pyspark_warren import errors
from warren import errors as client_errors


class WarrenSparkError(Exception):
    """The base; `condition` is a stable name that a program may test for."""

    condition = "WARREN"

    @property
    def text(self) -> str:
        """Return the text without the condition's name."""
        return super().__str__()

    def __str__(self) -> str:
        return f"[{self.condition}] {self.text}"


class OptionError(WarrenSparkError):
    """An option is unknown, missing, malformed or out of bounds."""

    condition = "WARREN_OPTION"


class CheckpointError(WarrenSparkError):
    """The checkpoint belongs to another queue, another source or a newer version."""

    condition = "WARREN_CHECKPOINT"


class CheckpointBehindError(CheckpointError):
    """Claims or rows that the checkpoint does not have as read are settled: an older copy."""

    condition = "WARREN_CHECKPOINT_BEHIND"


class CheckpointDamagedError(CheckpointError):
    """A file of a loop's checkpoint is missing, cut short or damaged."""

    condition = "WARREN_CHECKPOINT_DAMAGED"


class ClaimLostError(WarrenSparkError):
    """A claim of the checkpoint is lost: released, expired, or its queue was declared again."""

    condition = "WARREN_CLAIM_LOST"


class FencedError(WarrenSparkError):
    """A newer driver reads under the same reader id or checkpoint, or writes the sink's run."""

    condition = "WARREN_FENCED"


class SchemaError(WarrenSparkError):
    """An unknown column, or one of an unsupported type."""

    condition = "WARREN_SCHEMA"


class MalformedMessageError(WarrenSparkError):
    """A message with properties that cannot be decoded, in mode FAILFAST."""

    condition = "WARREN_MALFORMED"


class SameQueueError(WarrenSparkError):
    """A query would publish into the queue that it reads."""

    condition = "WARREN_SAME_QUEUE"


class StageLostError(WarrenSparkError):
    """Staged rows are missing, some or all: nothing was published."""

    condition = "WARREN_STAGE_LOST"


class BatchConflictError(WarrenSparkError):
    """The batch was published before, with other rows."""

    condition = "WARREN_BATCH_CONFLICT"


class BatchPastError(WarrenSparkError):
    """The batch precedes the last one that was published under its run."""

    condition = "WARREN_BATCH_PAST"


class SinkChangedError(WarrenSparkError):
    """A batch that may have been published would be published under other options."""

    condition = "WARREN_SINK_CHANGED"


class NotRoutableError(WarrenSparkError):
    """Rows that no binding routes to a queue."""

    condition = "WARREN_NO_ROUTE"


class PublishError(WarrenSparkError):
    """The broker refused rows: a queue with reject-publish is full, or a row is too large."""

    condition = "WARREN_PUBLISH"


class BrokerUnavailableError(WarrenSparkError):
    """No node, majority or token endpoint answered in time; no confirm in `confirmTimeout`."""

    condition = "WARREN_UNAVAILABLE"


class BrokerRefusedError(WarrenSparkError):
    """The broker refused the request: credentials, vhost, queue, permissions."""

    condition = "WARREN_REFUSED"


class TokenError(WarrenSparkError):
    """The token endpoint refuses the client, or answers something else than a token."""

    condition = "WARREN_TOKEN"


class UnsupportedError(WarrenSparkError):
    """A feature that this version does not have."""

    condition = "WARREN_UNSUPPORTED"


class VersionsError(WarrenSparkError):
    """Driver and executors have different versions of the connector."""

    condition = "WARREN_VERSIONS"


class SpoolError(WarrenSparkError):
    """The spool cannot be read or written, or holds what is not its own."""

    condition = "WARREN_SPOOL"


class SpoolLostError(WarrenSparkError):
    """The spool lacks rows that the checkpoint counts on."""

    condition = "WARREN_SPOOL_LOST"


class OffsetLostError(WarrenSparkError):
    """A stream lacks offsets that the checkpoint counts on: removed, or it was declared again."""

    condition = "WARREN_OFFSET_LOST"


_TOLD: Final[tuple[tuple[type[Exception], type[errors.WarrenSparkError], str], ...]] = (
    (client_errors.ClaimLost, errors.ClaimLostError, ""),
    (client_errors.Fenced, errors.FencedError, ""),
    (client_errors.StageLost, errors.StageLostError, "; start the query again"),
    (
        client_errors.BatchConflict,
        errors.BatchConflictError,
        (
            ". Give each output its own sinkId; make the query give the same rows for the same "
            "input; or set onBatchConflict=keep, and what was published first stands"
        ),
    ),
    (
        client_errors.BatchPast,
        errors.BatchPastError,
        ": option runId (a streaming query's own id is used without it)",
    ),
    (client_errors.Unroutable, errors.NotRoutableError, ""),
    (
        client_errors.AccessRefused,
        errors.BrokerRefusedError,
        "; check user, password, vhost and the user's permissions there",
    ),
    (client_errors.Conflict, errors.BrokerRefusedError, ""),
    (client_errors.TooLarge, errors.BrokerRefusedError, ""),
    (client_errors.PeerError, errors.BrokerRefusedError, ""),
    (
        client_errors.Unavailable,
        errors.BrokerUnavailableError,
        "; check that a majority of the nodes is up, or raise requestTimeout",
    ),
    (client_errors.UsageError, errors.OptionError, ""),
)
"""The client's error, the connector's, and what the user can do; the first that fits counts."""
_CONFIRMS: Final = (
    "; check that a majority of the nodes is up and that no resource alarm is set, or raise "
    "confirmTimeout"
)
_OF_ROWS: Final = (client_errors.Conflict, client_errors.TooLarge)
"""While rows are published these are `PublishError`."""


_E = TypeVar("_E", bound=Exception)


@contextmanager
def named_conditions(doing: str, publishing: bool = False) -> Iterator[None]:
    """Convert client errors to named conditions that say what the query was doing.

    doing       such as "reading queue 'flights' at a:5672"
    publishing  a full queue and a message that is too large are refusals of rows, and the time
                limit is confirmTimeout

    The condition's text includes the cause's; the cause itself is not chained, because Spark prints
    a chain from its far end, so that the remedy would be at the bottom.
    """
    try:
        yield
    except client_errors.WarrenError as wrong:
        for kind, told, remedy in _TOLD:
            if isinstance(wrong, kind):
                refused = publishing and kind in _OF_ROWS
                if publishing and kind is client_errors.Unavailable:
                    remedy = _CONFIRMS
                raise (errors.PublishError if refused else told)(
                    f"{doing}: {wrong}{remedy}"
                ) from None
        raise


def naming_queue(name: str, failed: _E) -> _E:
    """Return the error of one of several queues, with the queue's name in its text."""
    if repr(name) in str(failed):
        return failed
    text = f"queue {name!r}: {failed.args[0] if failed.args else failed}"
    if isinstance(failed, client_errors.PeerError):
        return type(failed)(text, status=failed.status, condition=failed.condition)
    return type(failed)(text)


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
    if (
        os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER"
        or "PYTHON_WORKER_FACTORY_SECRET" in os.environ  # Spark 4.0 does not set the other one
    ):
        # Spark's own switch (spark.sql.execution.pyspark.udf.hideTraceback.enabled), which its
        # worker reads when it writes an exception. The worker ends after that: no other exception
        # loses its traceback.
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"
    return wrong
