"""The hosts of a cluster that are this machine: a client may prefer them to others.

Every node answers every request, and reads messages from its own member of the queue: so
a client on a node's machine has the messages without a network between.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence


def is_near(host: tuple[str, int]) -> bool:
    """Return whether a host has an address of this machine; False where its name has none.

    Only an address of its own lets a machine bind a socket to it; the socket sends nothing.
    """
    try:
        found = socket.getaddrinfo(*host, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    return any(_own(family, where[0]) for family, _, _, _, where in found)


def _own(family: socket.AddressFamily, address: str | int) -> bool:
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as trial:
            trial.bind((address, 0))
    except OSError:
        return False
    return True


def first_host(hosts: Sequence[tuple[str, int]], prefer_near: bool) -> int:
    """Return which host is tried first: one by chance, among the near ones if there are any."""
    choice = prefer_near and len(hosts) > 1
    near = [at for at, host in enumerate(hosts) if is_near(host)] if choice else []
    return random.choice(near) if near else random.randrange(len(hosts))
