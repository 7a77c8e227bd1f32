"""The machine's own clock."""

from __future__ import annotations

import time


class SystemClock:
    """`ports.Clock` over the operating system."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
