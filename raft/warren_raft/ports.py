"""What the world must give to this package, as protocols."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Time, from outside."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back; delays are measured with it."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since the epoch; stamps are made of it."""
        ...
