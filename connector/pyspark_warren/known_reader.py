"""A reader as its queue knows it."""

from __future__ import annotations

from pyspark_warren.port import BrokerPort
from warren.admin import Reader


def known_reader(broker: BrokerPort, queue: str, name: str) -> Reader | None:
    """Return the reader with that name; None: the queue does not know it."""
    readers = broker.queue(queue).readers
    return next((each for each in readers if each.name == name), None)
