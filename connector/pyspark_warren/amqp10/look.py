"""Whether an AMQP 1.0 broker has a queue: a receiver that is given no credit."""

from __future__ import annotations

import pika
from pika.adapters.select_connection import IOLoop

from pyspark_warren.amqp10.session import SOME, Session10
from pyspark_warren.errors import WarrenSparkError
from pyspark_warren.options.options import Options


class _Look:
    """The events of a receiver that only attaches."""

    def __init__(self, options: Options, one: pika.ConnectionParameters, doing: str) -> None:
        self.why: WarrenSparkError | None = None
        self.loop = IOLoop()
        self._session = Session10(self.loop, options, one, doing, self, prefetch=0)

    def began(self, messages: int, consumers: int) -> None:
        """It is there."""
        self._session.close()

    def received(self) -> None:
        """Not without credit."""

    def ended(self, why: WarrenSparkError | None) -> None:
        """It is not, or has closed."""
        self.why = why
        self.loop.stop()


def look_at(options: Options, one: pika.ConnectionParameters, doing: str) -> int:
    """Return SOME: there is such a queue; raises NoQueueError, WarrenSparkError."""
    look = _Look(options, one, doing)
    look.loop.start()
    look.loop.close()
    if look.why is not None:
        raise look.why
    return SOME
