"""What happens in a simulated world, as a digest that depends on the seed alone."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from sim.agenda import Agenda

BEGINNING_MS = 1_700_000_000_000


class Traced:
    """A world that writes down what happens in it.

    trace  digest of all lines
    log    the lines themselves, for a report; None: they are not kept
    """

    def __init__(self) -> None:
        self.agenda = Agenda(BEGINNING_MS)
        self.trace = blake2b(digest_size=16)
        self.log: list[str] | None = None

    def note(self, *what: Any) -> None:
        """Add a line to the trace."""
        line = f"{self.agenda.now_ms - BEGINNING_MS} {what!r}"
        self.trace.update(line.encode())
        if self.log is not None:
            self.log.append(line)
