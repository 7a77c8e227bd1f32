"""The user of a 1.0 connection, with its permissions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from warren_broker.access.access import Access
from warren_broker.access.token_rights import HeldRights
from warren_broker.broker.broker import Broker
from warren_broker.cluster.client.queues import to_refusal
from warren_machines.metadata import commands as metadata
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import AnyCommand, Refused
from warren_wire import errors
from warren_wire.admin.requests import Performed, Result
from warren_wire.quoting import quoted

log = logging.getLogger(__name__)

Answer: TypeAlias = Callable[[Any], None]
"""Called once with the result that the request's docstring names, or with a Refusal."""
PERFORMED = Performed()


@dataclass(frozen=True, slots=True)
class Asker:
    """A connection's user in its vhost.

    connection  its number on this node
    guard       makes a callback's fault end only that connection (`clients.connection_faults`)
    rights      see Access
    in_parts    an answer is one of AMQP's values, which have a limit of parts
    """

    broker: Broker
    vhost: str
    user: str
    connection: int
    guard: Callable[[Callable[..., Any]], Callable[..., None]]
    rights: HeldRights | None = None
    in_parts: bool = True

    @property
    def access(self) -> Access:
        """Return the user's access checks."""
        return Access(self.broker, self.vhost, self.user, self.rights)

    def queue(self, name: str, *, store: bool = False) -> QueueRecord:
        """Return a queue that the user may read; raises NotFound, ResourceLocked, AccessRefused.

        store  it may be the store of an exchange
        """
        self.access.read_queue(name)
        return self.broker.queues.find(self.vhost, name, self.connection, store=store)

    def ask(
        self, queue: QueueRecord, command: AnyCommand, answer: Answer, result: Callable[[Any], Any]
    ) -> None:
        """Send a command to a queue; `result` converts its reply to the answer."""

        def done(reply: Any) -> None:
            refused = isinstance(reply, errors.Refusal)
            answer(reply if refused else result(reply))

        self.broker.queues.ask(queue, command, self.guard(done))

    def change(
        self, what: str, command: metadata.AnyCommand, answer: Answer, result: Result = PERFORMED
    ) -> None:
        """Log and submit a change of the definitions; the caller has checked the user's right."""
        log.info("user %s: %s", quoted(self.user), what)
        self.define(command, answer, result)

    def define(
        self, command: metadata.AnyCommand, answer: Answer, result: Result = PERFORMED
    ) -> None:
        """Submit a change of the definitions, with that result; see `change`."""

        def done(reply: Any) -> None:
            answer(reply if isinstance(reply, errors.Refusal) else result)

        self.broker.definitions.submit(command, self.guard(done))


def refusal_of(reply: Any, queue: QueueRecord) -> errors.Refusal | None:
    """Return the refusal that a queue's reply stands for, or None."""
    if isinstance(reply, errors.Refusal):
        return reply
    return to_refusal(reply, queue) if isinstance(reply, Refused) else None
