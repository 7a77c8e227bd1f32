"""Conversion of the client's errors to named conditions for Spark users."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from pyspark_warren import errors
from warren import errors as client_errors

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
