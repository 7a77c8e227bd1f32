"""Declaration of a queue answered with its counts, independent of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from warren_broker.access.requests import QueueDeclareRequest
from warren_broker.broker.broker import Broker
from warren_machines.metadata.commands import QueueIs
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.commands import StatReply
from warren_wire import errors
from warren_wire.admin.queues import DeclareQueueRequest

EMPTY = StatReply(0, 0, 0, 0, 0, 0, 0, 0, (), ())
"""The counts of a new queue."""
DELETIONS_MAX = 10
"""Deletions of the queue during one declaration after which that is refused."""


Declaration: TypeAlias = QueueDeclareRequest | DeclareQueueRequest
"""Have the queue's properties by the same names."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The result of a successful declaration.

    created  by this declaration: the queue is empty
    counts   a Refusal when no member could be asked
    """

    queue: QueueRecord
    created: bool
    counts: StatReply | errors.Refusal


def declare_and_count(
    broker: Broker,
    vhost: str,
    declaration: Declaration,
    connection: int,
    done: Callable[[Declared | errors.Refusal], None],
    *,
    server_named: bool = False,
) -> None:
    """Declare a queue and count its messages; a repeat counts as use of an expiring queue.

    1. The queue exists.  2. It expires, or another client deletes it, before its messages are
    counted.  A declaration is no question whether there is a queue: so it is declared once more.

    done  called once; must not raise (`clients.connection_faults`)
    """
    deletions = 0

    def counted(queue: QueueRecord, counts: StatReply | errors.Refusal) -> None:
        nonlocal deletions
        if isinstance(counts, errors.NotFound) and deletions < DELETIONS_MAX:
            deletions += 1
            declare()
        else:
            broker.cluster.counters.add("queues_declared", 1)
            done(Declared(queue, False, counts))

    def declared(reply: QueueIs | errors.Refusal) -> None:
        if isinstance(reply, errors.Refusal):
            done(reply)
        elif reply.created:
            broker.cluster.counters.add("queues_declared", 1)
            broker.cluster.counters.add("queues_created", 1)
            done(Declared(reply.queue, True, EMPTY))
        else:
            broker.queue_counts(reply.queue, True, partial(counted, reply.queue))

    def declare() -> None:
        broker.declare_queue(
            vhost,
            declaration.name,
            durable=declaration.durable,
            exclusive=declaration.exclusive,
            auto_delete=declaration.auto_delete,
            arguments=declaration.arguments,
            connection=connection,
            server_named=server_named,
            done=declared,
        )

    declare()
