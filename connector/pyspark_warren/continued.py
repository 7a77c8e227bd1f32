"""The names under which an older copy of a checkpoint with `readerId` continues.

Connectors before November 2026 used such a name after each lost claim.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pyspark_warren.errors import CheckpointError
from pyspark_warren.offset import Offset
from pyspark_warren.options import Options
from pyspark_warren.port import BrokerPort
from warren import errors as client_errors

log = logging.getLogger("pyspark_warren")

AFTER_LOSS: Final = "+"
"""Separates `readerId`, which has none, from what is drawn for a copy."""


def continued_name(options: Options, mint: Callable[[], str]) -> str:
    """Return a name that no reader has: the one of the checkpoint is the query's that is ahead."""
    return f"{options.reader_id}{AFTER_LOSS}{mint()}" if options.reader_id else mint()


def check_reader(options: Options, offset: Offset) -> None:
    """Raise CheckpointError for the checkpoint of a reader that is not `readerId`'s."""
    wanted = options.reader_id
    if wanted and offset.registered and offset.reader.partition(AFTER_LOSS)[0] != wanted:
        raise CheckpointError(
            f"the checkpoint is of reader {offset.reader!r}, the option readerId says {wanted!r}; "
            "leave readerId out to use this checkpoint, or give the query another "
            "checkpointLocation"
        )


class ContinuedReaders:
    """The readers that continued an earlier checkpoint of a `readerId` in one queue.

    1. An older copy of a checkpoint of readerId r continues as r+x (onClaimLost=continue).  2. A
    query begins with a new checkpoint, which knows r alone. What r+x holds would have no owner, as
    if there were no readerId. So it goes back to the queue, and a driver of r+x that still runs is
    fenced, as one of r is.
    """

    def __init__(self, broker: BrokerPort, options: Options) -> None:
        self._broker, self._options = broker, options
        self._ended = not options.reader_id

    def end(self) -> None:
        """End them, once. Before the first batch of a checkpoint: none in use names them then."""
        if self._ended:
            return
        for each in self._broker.queue(self._options.queue).readers:
            if each.name.startswith(self._options.reader_id + AFTER_LOSS):
                self._end(each.name)
        self._ended = True

    def _end(self, name: str) -> None:
        queue = self._options.queue
        reader = self._broker.reader(queue, name)
        try:
            reader.register()
            back = reader.release()
        except client_errors.PeerError as refused:
            log.warning("queue %r: reader %r is not ended: %s", queue, name, refused)
            return
        log.warning(
            "queue %r: reader %r of an earlier checkpoint of readerId=%s is ended, %d messages are "
            "in the queue again",
            queue,
            name,
            self._options.reader_id,
            back,
        )
