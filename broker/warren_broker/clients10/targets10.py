"""The targets of one AMQP 1.0 connection's publishers, between their links and the queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren_broker.admin.caller import Answer, Asker
from warren_broker.clients10 import link_requests
from warren_broker.clients10.connection import Connection10
from warren_wire import errors


class Targets10:
    """Where the links of one connection publish to.

    As in RabbitMQ, a link to a queue ends when the queue is deleted.

    carry_out  called when the connection has something to send
    """

    def __init__(self, connection: Connection10, carry_out: Callable[[], None]) -> None:
        self._connection = connection
        self._carry_out = carry_out
        self._numbers = 0
        self._watches: dict[int, Callable[[], None]] = {}

    def open(self, asker: Asker, request: link_requests.OpenTarget, answer: Answer) -> None:
        """Check that the client may publish there, and that its queue exists."""
        number = 0
        if not request.anonymous:
            asker.access.publish(request.exchange, ())
            if request.queue:
                number = self._watch(asker, request.queue)
        answer(link_requests.TargetOpened(number))

    def _watch(self, asker: Asker, name: str) -> int:
        """Raise unless there is such a queue; publishing asks no owner, as anywhere else."""
        if asker.broker.replies.exists(name):
            return 0
        queue = asker.broker.queues.find(asker.vhost, name)
        if queue.store_of:
            raise errors.store_refused(name, asker.vhost, queue.store_of)
        self._numbers += 1
        number = self._numbers

        def deleted() -> None:
            gone = errors.ResourceDeleted(f"{errors.named('queue', name, asker.vhost)} was deleted")
            self._connection.target_deleted(number, gone)
            self._carry_out()

        self._watches[number] = asker.broker.queues.watch(queue, asker.guard(deleted))
        return number

    def close(self, asker: Asker, request: link_requests.CloseTarget, answer: Answer) -> None:
        """Forget a link's target."""
        end = self._watches.pop(request.number, None)
        if end is not None:
            end()

    def closed(self) -> None:
        """Forget all: the connection is lost."""
        for end in self._watches.values():
            end()
        self._watches.clear()
        self._carry_out = _nothing

    def handlers(self) -> dict[type, Callable[[Asker, Any, Answer], None]]:
        """Return the handlers of the links' requests."""
        return {link_requests.OpenTarget: self.open, link_requests.CloseTarget: self.close}


def _nothing() -> None:
    """Do nothing: the connection is lost."""
