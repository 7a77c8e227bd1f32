"""Bounds of the files that connections take, so that the log can always open its own.

A file of the log that cannot be opened ends the node, or counts as damaged. A process gives a new
file the lowest number that is free. So while every connection above a bound is closed at once, the
numbers above it are free for everything else: as many as there are above the bound, whatever the
connections do.
"""

from __future__ import annotations

import resource
import socket
from typing import Final

LOG_RESERVED: Final = 256
"""Files kept free for the log and for what a node opens besides connections."""
PEERS_RESERVED: Final = 256
"""Files kept free, besides, for connections of other nodes."""


def raise_limit() -> tuple[int, int]:
    """Raise this process's limit of open files to the highest allowed; return (before, now)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft, soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # the system's own limit may be lower
        return soft, soft
    return soft, hard


class SocketBound:
    """Which accepted sockets are closed at once: those with a number from `end` on.

    limit  the process's limit of open files; -1: none
    end    never below half of the limit for clients, three quarters for peers
    """

    def __init__(self, for_clients: bool, limit: int | None = None) -> None:
        if limit is None:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.limit = limit
        if for_clients:
            reserved = min(LOG_RESERVED + PEERS_RESERVED, limit // 2)
        else:
            reserved = min(LOG_RESERVED, limit // 4)
        self.end = limit - reserved

    def admits(self, sock: socket.socket, spare: int = 0) -> bool:
        """Return whether this socket leaves enough free, and so many more (at most an eighth)."""
        return self.limit < 0 or sock.fileno() < self.end - min(spare, self.end // 8)
