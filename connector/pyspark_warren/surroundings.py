"""What the driver's side of a query has of the process around it; tests give their own."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass


def mint_reader() -> str:
    """Return a new reader's name."""
    return f"spark-{uuid.uuid4().hex}"


def start_thread(work: Callable[[], None]) -> None:
    """Do that in a thread, which ends with its process."""
    threading.Thread(target=work, name="warren-ahead", daemon=True).start()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The clock, the chance and the threads of a process.

    clock_ms  monotonic milliseconds
    sleep_s   waits that many seconds
    mint      generates a new reader name
    beside    does something while the caller continues
    """

    clock_ms: Callable[[], int]
    sleep_s: Callable[[float], None]
    mint: Callable[[], str]
    beside: Callable[[Callable[[], None]], None] = start_thread

    @classmethod
    def of_this_process(cls) -> Surroundings:
        """Return the real ones."""
        return cls(lambda: time.monotonic_ns() // 1_000_000, time.sleep, mint_reader)
