"""A port for clients on a loop that turns while something is waited for."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from tests.patience import PATIENCE_S
from warren_broker.cluster.strangers import Strangers
from warren_broker.config import Limits
from warren_broker.listeners.listener import AmqpListener
from warren_raft.runtime.loop import Loop


class ListeningWorld:
    """A loop and a listener on it; the test says which protocols it speaks."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.loop = Loop()
        limits = Limits(connections_max=10) if limits is None else limits
        self.strangers = Strangers(self.loop, limits)
        self.listener = AmqpListener(
            self.loop,
            ("127.0.0.1", 0),
            limits.handshake_timeout_ms,
            limits.connections_max,
            self.strangers.connections,
        )

    def connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.listener.port), PATIENCE_S)
        made.settimeout(PATIENCE_S)
        return made

    def until(self, holds: Callable[[], Any]) -> None:
        """Turn the loop until the condition holds; fail after PATIENCE_S."""
        deadline = time.monotonic() + PATIENCE_S

        def look() -> None:
            if holds() or time.monotonic() > deadline:
                self.loop.stop()
            else:
                self.loop.call_later(5, look)

        self.loop.call_soon(look)
        self.loop.run()
        assert holds()
