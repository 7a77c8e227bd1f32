"""What a source sends although it may not: how much of that is held."""

from __future__ import annotations

from typing import Final

OVERRUN_BYTES: Final = 64 << 20
"""Of messages that a source may send beyond what it was allowed, until it keeps to that again."""
KEPT_BYTES: Final = 512
"""What a message that is held counts besides its own bytes: small ones are held, too."""


class Overrun:
    """Bytes that have come too many, one after the other. Ended at once, a source that exceeds its
    limit now and then, as RabbitMQ 3.10 does, would count a failed delivery of each message."""

    def __init__(self) -> None:
        self._bytes = 0

    def counted(self, size: int, beyond: bool) -> int:
        """Count a message; return how many bytes have come too many, 0 as long as that may be.

        beyond  whether it came although it should not
        """
        self._bytes = self._bytes + size + KEPT_BYTES if beyond else 0
        return self._bytes if self._bytes > OVERRUN_BYTES else 0
