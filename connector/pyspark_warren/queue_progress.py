"""The counts of queues in the query's progress."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark_warren.plan import ViewPiece
from pyspark_warren.port import BrokerPort
from warren import errors as client_errors
from warren.admin import Queue
from warren.views import EVERYTHING
from warren_wire.message_states import READY

log = logging.getLogger("pyspark_warren")

REFRESH_MS: Final = 1000
"""The counts are at most so old."""


def sums(found: Mapping[str, Queue]) -> dict[str, Any]:
    """Return what `lastProgress` shows of several queues."""
    counted = ("bytes_ready", "messages_claimed", "messages_ready", "messages_unacknowledged")
    return {
        **{name: sum(getattr(queue, name) for queue in found.values()) for name in counted},
        "queues": {name: queue.messages_ready for name, queue in sorted(found.items())},
    }


class QueueProgress:
    """What `lastProgress` shows of the queue that a query reads.

    clock_ms  monotonic milliseconds
    """

    def __init__(self, broker: BrokerPort, queue: str, clock_ms: Callable[[], int]) -> None:
        self._broker = broker
        self._queue = queue
        self._clock_ms = clock_ms
        self._shown: dict[str, Any] | None = None
        self._at_ms = 0

    def counts(self, idle: bool, given_up: dict[str, Any] | None) -> dict[str, Any]:
        """Return the counts, requested again when they are older than REFRESH_MS.

        idle      the last poll found nothing, so nothing is ready: they are not requested
        given_up  the batch that was given up last; None: none was
        """
        now = self._clock_ms()
        if self._shown is not None and idle:
            self._shown.update(messages_ready=0, bytes_ready=0, head_entered_ms=None)
        elif self._shown is None or now - self._at_ms >= REFRESH_MS:
            found = self._broker.queue(self._queue)
            self._at_ms = now
            self._shown = {
                "bytes_ready": found.bytes_ready,
                "head_entered_ms": self._head_entered_ms() if found.messages_ready else None,
                "messages_claimed": found.messages_claimed,
                "messages_ready": found.messages_ready,
                "messages_unacknowledged": found.messages_unacknowledged,
                "queue": self._queue,
            }
        if given_up is not None:
            self._shown["given_up"] = given_up
        return self._shown

    def _head_entered_ms(self) -> int | None:
        """Return when the message that is next entered the queue, by its leader's clock."""
        head = ViewPiece(0, EVERYTHING, max_messages=1)
        try:
            for viewed in self._broker.view(self._queue, (READY,), head, True, None):
                for _, entered_ms in viewed.head.times:
                    return entered_ms
        except client_errors.WarrenError as wrong:
            log.info("queue %r: age of its head is not known: %s", self._queue, wrong)
        return None
