"""What the query of a sink reads, by the offsets in its checkpoint: a sink is not told that.

A query that publishes into the queue it reads never ends, and is refused unless that is allowed.
Two indications are checked:

1. the rows' column `queue`, which the source fills, on the executors;
2. the offsets that Spark has written for the batch, on the driver, where the checkpoint is a
   directory that can be read there. They name queue and reader; a target queue that knows the
   reader is the source itself, not a queue of the same name in another cluster.

With the option settleWithBatch a micro-batch's publication settles its claims. They are found in
these offsets, and the epoch of the driver that holds them in the counts of their queue. A batch
that is run again after it was published reads nothing, because its claims are settled. So the query
must have one source, and no state: a state computed again without the batch's rows would lack them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark_warren.claims.offset import Offset, Position
from pyspark_warren.claims.queue_reader import reader_of
from pyspark_warren.errors import CheckpointError, SameQueueError, UnsupportedError
from pyspark_warren.options.options import Options
from warren.queues import Queue
from warren.stages import SettledClaim


def refuse_read_queues(options: Options, read: set[str], targets: Iterable[str]) -> None:
    """Raise SameQueueError when a target is among the queues that rows say they come from."""
    both = sorted(read.intersection(targets))
    if both and not options.allow_loop:
        raise SameQueueError(
            f"{_text(both[0])}; rows name it in their column queue: drop that column "
            "if they are from another cluster or vhost"
        )


def refuse_checkpoint_queues(
    options: Options, batch: int, targets: Iterable[str], look: Callable[[str], Queue]
) -> None:
    """Raise SameQueueError when a target is a queue that the batch was read from.

    look  counts and readers of a queue in the sink's vhost
    """
    if options.allow_loop:
        return
    wanted = set(targets)
    for vhost, at in positions_of(options.checkpoint, batch):
        if at.queue in wanted and vhost == options.vhost:
            if at.reader in (reader.name for reader in look(at.queue).readers):
                raise SameQueueError(_text(at.queue))


def checkpoint_directory(checkpoint: str) -> Path | None:
    """Return the checkpoint as a directory of this machine; None if it is elsewhere."""
    where = urlsplit(checkpoint)
    if not checkpoint or where.scheme not in ("", "file") or where.netloc not in ("", "localhost"):
        return None
    return Path(checkpoint if not where.scheme else unquote(where.path))


def stored_offsets(checkpoint: str, batch: int) -> list[str]:
    """Return the offset of each source at a batch's end; none if they cannot be read here."""
    directory = checkpoint_directory(checkpoint)
    if directory is None:
        return []
    try:
        lines = (directory / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return lines[2:]  # after a version and the batch's metadata


def positions_of(checkpoint: str, batch: int) -> list[tuple[str, Position]]:
    """Return vhost and position of each Warren queue at a batch's end.

    None if the checkpoint cannot be read here.
    """
    found: list[tuple[str, Position]] = []
    for line in stored_offsets(checkpoint, batch):
        try:
            stored = json.loads(line)
            offset = Offset.from_dict(stored if isinstance(stored, dict) else {})
        except (ValueError, CheckpointError):
            continue  # the offset of another source
        found += [(offset.vhost, position) for position in offset.queues.values()]
    return found


def _text(queue: str) -> str:
    return (
        f"the query reads queue {queue!r} and publishes into it, so it would never end. Give "
        "another exchange or routingKey, or the option allowLoop=true if this is meant"
    )


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
