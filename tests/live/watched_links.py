"""Receivers of AMQP 1.0 on real nodes, and what flows with properties say to them.

Proton shows no properties of flows: the frames are read from the socket beside it.
"""

from __future__ import annotations

import socket
import time
from typing import Any

from proton import Message, int32, symbol

from tests.broker.clients10.test_activity import flows
from warren_wire.amqp10.engine import Engine

WAIT_S = 60.0


class WatchedLink:
    """One connection with one receiver.

    said  the properties of the flows that came, in order
    """

    def __init__(self, address: str, queue: str, credit: int = 10, priority: int = 0) -> None:
        self.said: list[dict[str, Any]] = []
        self._taken = b""
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        self._engine = Engine(server=False, container="watched")
        connection = self._engine.connection
        connection.user = connection.password = "guest"
        connection.hostname = "vhost:/"
        sasl = self._engine.transport.sasl()
        sasl.allow_insecure_mechs = True
        sasl.allowed_mechs("PLAIN")
        self._engine.bind()
        connection.open()
        session = connection.session()
        session.open()
        self.receiver = session.receiver("watched")
        self.receiver.source.address = f"/queues/{queue}"
        if priority:
            self.receiver.properties = {symbol("rabbitmq:priority"): int32(priority)}
        self.receiver.open()
        if credit:
            self.receiver.flow(credit)
        self.turn(0.0)

    def __enter__(self) -> WatchedLink:
        return self

    def __exit__(self, *failure: object) -> None:
        self.lose()

    def turn(self, wait_s: float = 0.05) -> None:
        """Send what is due, and read for at most that long."""
        while pieces := self._engine.output():
            for piece in pieces:
                self._socket.sendall(bytes(piece))
        self._socket.settimeout(max(wait_s, 0.001))
        try:
            data = self._socket.recv(1 << 20)
        except TimeoutError:
            return
        self._taken += data
        self._look()
        for _ in self._engine.receive(data):
            pass
        list(self._engine.events())

    def _look(self) -> None:
        """Take whole frames; protocol headers are skipped."""
        at = 0
        while at + 8 <= len(self._taken):
            is_header = self._taken[at : at + 4] == b"AMQP"
            size = 8 if is_header else int.from_bytes(self._taken[at : at + 4], "big")
            if at + size > len(self._taken):
                break
            if not is_header:
                for _, fields in flows(self._taken[at : at + size]):
                    self.said.append({str(key): value for key, value in fields[10].items()})
            at += size
        self._taken = self._taken[at:]

    def active(self) -> list[bool]:
        """What it was told of its activity."""
        return [each["rabbitmq:active"] for each in self.said]

    def until(self, wanted: list[bool]) -> None:
        """Wait until it was told just that."""
        deadline = time.monotonic() + WAIT_S
        while self.active() != wanted and time.monotonic() < deadline:
            self.turn()
        assert self.active() == wanted

    def messages(self, count: int) -> list[Message]:
        """Receive and accept so many messages."""
        found: list[Message] = []
        deadline = time.monotonic() + WAIT_S
        while len(found) < count and time.monotonic() < deadline:
            self.turn()
            while (delivery := self.receiver.current) is not None and not delivery.partial:
                message = Message()
                message.decode(self.receiver.recv(delivery.pending))
                self.receiver.advance()
                delivery.update(delivery.ACCEPTED)
                delivery.settle()
                found.append(message)
        self.turn(0.0)
        assert len(found) == count
        return found

    def detach(self) -> None:
        """End the link, not the connection."""
        self.receiver.close()
        self.turn()

    def lose(self) -> None:
        """Lose the connection."""
        self._socket.close()
