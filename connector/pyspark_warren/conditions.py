"""The client's errors as the named conditions that a Spark user sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark_warren import errors
from warren import errors as client_errors


@contextmanager
def named_conditions(doing: str, publishing: bool = False) -> Iterator[None]:
    """Client errors as named conditions that say what the query was doing.

    doing       such as "reading queue 'flights' at a:5672"
    publishing  a queue that is full, a message that is too large are refusals of rows

    The cause's text is in the condition's; the cause itself is not chained, because Spark prints a
    chain from its far end, and what the user has to do would stand at the bottom.
    """
    try:
        yield
    except client_errors.ClaimLost as wrong:
        raise errors.ClaimLostError(f"{doing}: {wrong}") from None
    except client_errors.Fenced as wrong:
        raise errors.FencedError(f"{doing}: {wrong}") from None
    except client_errors.StageLost as wrong:
        raise errors.StageLostError(f"{doing}: {wrong}; start the query again") from None
    except client_errors.BatchConflict as wrong:
        raise errors.BatchConflictError(
            f"{doing}: {wrong}. Give each output its own sinkId; make the query give the same rows "
            "for the same input; or set onBatchConflict=keep, and what was published first stands"
        ) from None
    except client_errors.BatchPast as wrong:
        raise errors.BatchPastError(
            f"{doing}: {wrong}: option runId (a streaming query's own id is used without it)"
        ) from None
    except client_errors.Unroutable as wrong:
        raise errors.NotRoutableError(f"{doing}: {wrong}") from None
    except client_errors.AccessRefused as wrong:
        raise errors.BrokerRefusedError(
            f"{doing}: {wrong}; check user, password, vhost and the user's permissions there"
        ) from None
    except (client_errors.Conflict, client_errors.TooLarge) as wrong:
        kind = errors.PublishError if publishing else errors.BrokerRefusedError
        raise kind(f"{doing}: {wrong}") from None
    except client_errors.PeerError as wrong:
        raise errors.BrokerRefusedError(f"{doing}: {wrong}") from None
    except client_errors.Unavailable as wrong:
        raise errors.BrokerUnavailableError(
            f"{doing}: {wrong}; check that a majority of the nodes is up, or raise requestTimeout"
        ) from None
    except client_errors.UsageError as wrong:
        raise errors.OptionError(f"{doing}: {wrong}") from None
