"""Free ports on loopback, reserved for the programs that will listen on them."""

from __future__ import annotations

import os
import random
import socket
import weakref
from collections.abc import Sequence
from contextlib import ExitStack

from warren.errors import UsageError

FREE_PORTS = range(10_240, 32_768)
"""Where any free port is looked for: below those that Linux gives to outgoing connections."""
PORTS_TRIED_MAX = 200
_HOST = "127.0.0.1"


class ReservedPorts:
    """TCP ports that nothing else takes which looks for ports here, in this or another process.

    1. A port is free, and is left for the node to listen on.  2. Another program looks for free
    ports, and is given the same one.  3. The node cannot start; or, stopped, not start again.
    So a port that is taken is marked: the UDP port of the same number is bound, which no node uses.
    The marks end with this object, or with its process, however that ends.
    """

    def __init__(self) -> None:
        self._marks: list[int] = []
        weakref.finalize(self, _close, self._marks)

    def take(self, port: int | None = None) -> int:
        """Take that port, or any free one if it is not free; return its number.

        Any one is none that the system gives to outgoing connections. Raises UsageError.
        """
        if port is not None and self._take([port]):
            return port
        return self.take_row(1)

    def take_row(self, count: int) -> int:
        """Take `count` consecutive free ports; return the first. Raises UsageError."""
        firsts = range(FREE_PORTS.start, FREE_PORTS.stop - count + 1)
        for first in random.SystemRandom().sample(firsts, PORTS_TRIED_MAX):
            if self._take(range(first, first + count)):
                return first
        raise UsageError(
            f"{PORTS_TRIED_MAX} times {count} ports between {FREE_PORTS.start} and "
            f"{FREE_PORTS.stop - 1} are all taken; end what listens there"
        )

    def mark(self, port: int) -> None:
        """Mark a port that is known to be this user's, unless something marks it already."""
        try:
            self._marks.append(_bound(socket.SOCK_DGRAM, port).detach())
        except OSError:
            return

    def _take(self, ports: Sequence[int]) -> bool:
        try:
            with ExitStack() as held:
                marks = [held.enter_context(_bound(socket.SOCK_DGRAM, port)) for port in ports]
                for port in ports:
                    held.enter_context(socket.create_server((_HOST, port)))
                self._marks += [mark.detach() for mark in marks]
        except OSError:
            return False
        return True


def _bound(kind: socket.SocketKind, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, kind)
    try:
        made.bind((_HOST, port))
    except OSError:
        made.close()
        raise
    return made


def _close(marks: list[int]) -> None:
    for mark in marks:
        os.close(mark)
