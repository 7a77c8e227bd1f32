"""Free ports on loopback."""

from __future__ import annotations

from bench.generator import Missing
from warren.errors import UsageError
from warren.ports import ReservedPorts

_RESERVED = ReservedPorts()


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports; they are this process's until it ends."""
    try:
        return _RESERVED.take_row(count)
    except UsageError as error:
        raise Missing(str(error)) from None
