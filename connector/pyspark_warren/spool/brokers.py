"""What the spool asks of a broker, over the protocol that the broker speaks."""

from __future__ import annotations

from typing import TypeAlias

import pika
from pika import exceptions

from pyspark_warren.amqp.connection import is_no_queue, named, of_look, open_any, open_blocking
from pyspark_warren.amqp.session import Session, SessionEvents
from pyspark_warren.amqp10.connection import NoQueueError
from pyspark_warren.amqp10.look import look_at
from pyspark_warren.amqp10.session import SOME, Session10
from pyspark_warren.options.options import Options
from warren_wire.links.uris import AMQP10

__all__ = ["SOME", "AnySession", "NoQueueError", "open_session", "ready_of"]

AnySession: TypeAlias = Session | Session10


def open_session(
    loop: object,
    options: Options,
    one: pika.ConnectionParameters,
    doing: str,
    events: SessionEvents,
    tag: str,
) -> AnySession:
    """Begin to consume the queue on a connection to that host."""
    if options.broker == AMQP10:
        return Session10(loop, options, one, doing, events)
    return Session(loop, one, options.queue, options.prefetch, doing, events, tag=tag)


def ready_of(options: Options, doing: str) -> int:
    """Return how many messages the queue has ready; SOME: the broker does not count them.

    raises  NoQueueError: it has no such queue; WarrenSparkError
    """
    name = of_look(options)
    if options.broker == AMQP10:
        return open_any(options, doing, lambda one: look_at(options, one, doing), name)
    connection = None
    try:
        connection = open_blocking(options, doing, name)
        found = connection.channel().queue_declare(options.queue, passive=True)
        return int(found.method.message_count)
    except (exceptions.AMQPError, OSError) as wrong:
        error = named(wrong, doing, options.addresses())
        if isinstance(wrong, exceptions.ChannelClosedByBroker) and is_no_queue(wrong):
            raise NoQueueError(error.text) from None
        raise error from None
    finally:
        if connection is not None and connection.is_open:
            connection.close()
