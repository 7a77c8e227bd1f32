"""Checks with Proton's binding for Python on a broker: one line for each of them.

    python proton_checks.py URI ADDRESS

"passed NAME" or "failed NAME: why". They do what Proton's own examples of these names do. The queue
at ADDRESS is an empty one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection

MESSAGES = 100
WAIT_S = 60.0


class Check(MessagingHandler):
    """One connection of the event loop; it fails when it is not done in time."""

    def __init__(self, uri: str, address: str, **options: Any) -> None:
        super().__init__(**options)
        self.uri = uri
        self.address = address
        self.error = "it is not done in time"
        self._connection: Any = None
        self._timer: Any = None

    def on_start(self, event: Any) -> None:
        """Connect."""
        self._timer = event.container.schedule(WAIT_S, self)
        self._connection = event.container.connect(self.uri, allowed_mechs="PLAIN", reconnect=False)
        self.links(event.container, self._connection)

    def links(self, container: Any, connection: Any) -> None:
        """Make the links."""
        raise NotImplementedError

    def done(self, error: str = "") -> None:
        """End."""
        self.error = error
        self._timer.cancel()
        self._connection.close()

    def on_timer_task(self, event: Any) -> None:
        """Give up."""
        self._connection.close()

    def on_link_error(self, event: Any) -> None:
        """Fail."""
        self.done(str(event.link.remote_condition))

    def on_transport_error(self, event: Any) -> None:
        """Fail."""
        self.done(str(event.transport.condition))


class Send(Check):
    """Sends MESSAGES as it gets credit, and waits until all are accepted."""

    sent = accepted = 0

    def links(self, container: Any, connection: Any) -> None:
        """Make a sender."""
        container.create_sender(connection, self.address)

    def on_sendable(self, event: Any) -> None:
        """Send what there is credit for."""
        while event.sender.credit and self.sent < MESSAGES:
            event.sender.send(Message(id=self.sent, body={"number": self.sent}))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        """Count."""
        self.accepted += 1
        if self.accepted == MESSAGES:
            self.done()

    def on_rejected(self, event: Any) -> None:
        """Fail."""
        self.done("a message was rejected")


class Receive(Check):
    """Receives MESSAGES in their order, and accepts them."""

    received = 0

    def links(self, container: Any, connection: Any) -> None:
        """Make a receiver."""
        container.create_receiver(connection, self.address)

    def on_message(self, event: Any) -> None:
        """Compare."""
        if event.message.body != {"number": self.received}:
            self.done(f"message {self.received} is {event.message.body}")
            return
        self.received += 1
        if self.received == MESSAGES:
            event.receiver.close()

    def on_link_closed(self, event: Any) -> None:
        """Its outcomes have left: end."""
        self.done()


class Hello(Check):
    """Sends itself a message on one connection."""

    def links(self, container: Any, connection: Any) -> None:
        """Make both."""
        container.create_receiver(connection, self.address)
        container.create_sender(connection, self.address)

    def on_sendable(self, event: Any) -> None:
        """Send one."""
        event.sender.send(Message(body="hello"))
        event.sender.close()

    def on_message(self, event: Any) -> None:
        """Compare."""
        if event.message.body != "hello":
            self.done(f"it is {event.message.body}")
            return
        event.receiver.close()

    def on_link_closed(self, event: Any) -> None:
        """End when the receiver's outcome has left."""
        if event.link.is_receiver:
            self.done()


def blocking(uri: str, address: str) -> str:
    """Do the same without an event loop."""
    connection = BlockingConnection(uri, timeout=WAIT_S, allowed_mechs="PLAIN")
    try:
        receiver = connection.create_receiver(address)
        sender = connection.create_sender(address)
        sender.send(Message(body="hello"))
        message = receiver.receive(timeout=WAIT_S)
        receiver.accept()
        receiver.close()
        return "" if message.body == "hello" else f"it is {message.body!r}"
    finally:
        connection.close()


def run(check: type[Check]) -> Callable[[str, str], str]:
    """Return what runs a check and returns its error, "" for none."""

    def result(uri: str, address: str) -> str:
        made = check(uri, address)
        Container(made).run()
        return made.error

    return result


CHECKS = {
    "simple_send": run(Send),
    "simple_recv": run(Receive),
    "helloworld": run(Hello),
    "helloworld_blocking": blocking,
}


def main(uri: str, address: str) -> None:
    """Run all of them."""
    for name, check in CHECKS.items():
        try:
            error = check(uri, address)
        except Exception as fault:
            error = f"{type(fault).__name__}: {fault}"
        print(f"failed {name}: {error}" if error else f"passed {name}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
