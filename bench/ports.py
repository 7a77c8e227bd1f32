"""Free ports on loopback."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

from bench.generator import Missing


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports, below the ephemeral range."""
    for first in random.sample(range(12_000, 30_000, 16), 500):
        try:
            with ExitStack() as held:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return first
    raise Missing(f"{count} free ports in a row between 12000 and 30000 on loopback")
