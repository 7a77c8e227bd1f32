"""Option settleWithBatch of the sink: the claims that a micro-batch's publication settles.

A sink is not told what its query reads. It finds the claims in the offsets that Spark has written
for the batch, and the epoch of the driver that holds them in the counts of their queue.

A batch that is run again after it was published reads nothing, because its claims are settled. So
the query must have one source, and no state: a state computed again without the batch's rows
would lack them.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark_warren.errors import UnsupportedError
from pyspark_warren.feedback_loop import checkpoint_directory, positions_of, stored_offsets
from pyspark_warren.options import Options
from pyspark_warren.queue_reader import reader_of
from warren.admin import Queue
from warren.stages import SettledClaim

_WITHOUT = "leave settleWithBatch out of source and sink, and claims are settled after the batch"


def check_checkpoint(options: Options) -> None:
    """Raise UnsupportedError, before the first batch, when the checkpoint cannot be read here."""
    if checkpoint_directory(options.checkpoint) is None:
        raise UnsupportedError(
            "option settleWithBatch=true needs the option checkpointLocation with a directory "
            f"that the driver can read, not {options.checkpoint!r}; {_WITHOUT}"
        )


def claims_of_batch(
    options: Options, batch: int, look: Callable[[str], Queue]
) -> tuple[SettledClaim, ...]:
    """Return the claims that a batch with rows was computed from.

    look    counts and readers of a queue in the sink's vhost
    raises  UnsupportedError: the query is one that cannot be settled so
    """
    directory = checkpoint_directory(options.checkpoint)
    if directory is not None and (directory / "state").exists():
        raise UnsupportedError(
            f"option settleWithBatch=true: the query has a state ({directory / 'state'}), which a "
            f"batch that is run again would lose rows of; {_WITHOUT}"
        )
    sources = stored_offsets(options.checkpoint, batch)
    positions = positions_of(options.checkpoint, batch)
    if len(sources) != 1 or len(positions) != 1:
        raise UnsupportedError(
            f"option settleWithBatch=true needs a query with one source, a queue of Warren; the "
            f"checkpoint {options.checkpoint!r} has {len(sources)} sources for batch {batch}, "
            f"{len(positions)} of them queues; {_WITHOUT}"
        )
    vhost, at = positions[0]
    if vhost != options.vhost:
        raise UnsupportedError(
            f"option settleWithBatch=true: the query reads vhost {vhost!r} and publishes "
            f"to vhost {options.vhost!r}, it must be the same; {_WITHOUT}"
        )
    reader = reader_of(look(at.queue), at.reader)
    if reader is None:
        raise UnsupportedError(
            f"option settleWithBatch=true: queue {at.queue!r} of the sink's cluster does not "
            f"know reader {at.reader!r}: the source is another cluster; {_WITHOUT}"
        )
    return tuple(
        SettledClaim(at.queue, at.reader, claim.number, reader.epoch) for claim in at.claims
    )
