"""What the driver's side of a query has of the process around it; tests give their own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass


def mint_reader() -> str:
    """Return a new reader's name."""
    return f"spark-{uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The clock and the chance of a process.

    clock_ms  monotonic milliseconds
    sleep_s   waits that many seconds
    mint      generates a new reader name
    """

    clock_ms: Callable[[], int]
    sleep_s: Callable[[float], None]
    mint: Callable[[], str]

    @classmethod
    def of_this_process(cls) -> Surroundings:
        """Return the real ones."""
        return cls(lambda: time.monotonic_ns() // 1_000_000, time.sleep, mint_reader)
