"""A reader as its queue knows it."""

from __future__ import annotations

from pyspark_warren.offset import Offset
from pyspark_warren.port import BrokerPort
from warren.admin import Queue, Reader
from warren.errors import ClaimLost


def known_reader(broker: BrokerPort, queue: str, name: str) -> Reader | None:
    """Return the reader with that name; None: the queue does not know it."""
    readers = broker.queue(queue).readers
    return next((each for each in readers if each.name == name), None)


def has_to_read(found: Queue, name: str) -> bool:
    """Return whether messages are ready, or claims open that an earlier checkpoint has left."""
    mine = next((each for each in found.readers if each.name == name), None)
    return found.messages_ready > 0 or (mine is not None and mine.open_claims + mine.in_parts > 0)


def check_standing(start: Offset, settled: int) -> None:
    """Check that the checkpoint's claims are settled, except its last, or two (`prefetch`)."""
    if not start.number - 2 * bool(start.claims) <= settled <= start.number:
        raise ClaimLost(
            f"the checkpoint ends at claim {start.number} of reader {start.reader!r}, the broker "
            f"has settled claims up to {settled}: the reader was released, or forgotten after long "
            "silence"
        )


def stands_in(reader: Reader, start: Offset, end: Offset) -> bool:
    """Return whether the reader's open claims can be those of the batch from start to end.

    1. The first batch of a query with `readerId` reads claim 6, and its driver ends.  2. The queue
    is put back from elsewhere, and does not know the reader, or less of it.  3. The next driver
    begins at 0, with a batch that ends at 6. Claims 1 to 5 are in no batch of this checkpoint: a
    claim 6 would be another one.
    """
    first, last = end.claims[0].number, end.claims[-1].number
    settled_min = first - 1 - bool(start.claims)  # the batch before may not be settled yet
    return settled_min <= reader.settled < first and last <= reader.settled + reader.open_claims
