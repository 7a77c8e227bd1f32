"""A channel's methods on exchanges, queues: check, ask the broker, answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warren_broker.access import requests
from warren_broker.access.message_checks import REPLY_TO
from warren_broker.clients091.state import Channel
from warren_machines.metadata import commands as metadata
from warren_wire import errors
from warren_wire.amqp091 import methods
from warren_wire.amqp091.methods import Method
from warren_wire.arguments import storable

NAME_PREFIX_BYTES_MAX = 64
"""Longest x-name-prefix."""


def queue_name(channel: Channel, name: str) -> str:
    """Return the name, or for an empty one the queue last declared on the channel."""
    if name:
        return name
    if not channel.last_queue:
        raise errors.NotFound("no previously declared queue")
    return channel.last_queue


def strip(name: str) -> str:
    """Remove line ends from a declared name, as RabbitMQ does."""
    return name.replace("\n", "").replace("\r", "")


def _reply(channel: Channel, no_wait: bool, method: Method) -> None:
    if not no_wait:
        channel.send(method)


def _count_reply(
    channel: Channel, no_wait: bool, kind: type[methods.QueueDeleteOk] | type[methods.QueuePurgeOk]
) -> Callable[[requests.MessageCount], None]:
    return lambda result: _reply(channel, no_wait, kind(message_count=result.messages))


def _flags(method: methods.ExchangeDeclare | methods.QueueDeclare) -> dict[str, bool]:
    return {
        "passive": method.passive,
        "durable": method.durable,
        "auto_delete": method.auto_delete,
    }


# ------------------------------------------------------------------ exchanges


def _define(channel: Channel, command: requests.Definition, no_wait: bool, reply: Method) -> None:
    channel.ask(requests.DefineRequest, lambda _: _reply(channel, no_wait, reply), command=command)


def _exchange_declare(channel: Channel, method: methods.ExchangeDeclare) -> None:
    name, connection = strip(method.exchange), channel.connection
    connection.access.declare_exchange(name, method.arguments, method.passive)
    if method.passive:
        if connection.view.exchange(connection.vhost, name) is None:
            raise errors.no_exchange(name, connection.vhost)
        _reply(channel, method.no_wait, methods.ExchangeDeclareOk())
        return
    command = metadata.DeclareExchange(
        connection.vhost,
        name,
        method.kind,
        method.durable,
        method.auto_delete,
        method.internal,
        method.arguments,
    )
    _define(channel, command, method.no_wait, methods.ExchangeDeclareOk())


def _exchange_delete(channel: Channel, method: methods.ExchangeDelete) -> None:
    name, connection = strip(method.exchange), channel.connection
    connection.access.delete_exchange(name)
    command = metadata.DeleteExchange(connection.vhost, name, method.if_unused)
    _define(channel, command, method.no_wait, methods.ExchangeDeleteOk())


def _exchange_bind(channel: Channel, method: methods.ExchangeBind) -> None:
    _bind_exchange(channel, metadata.Bind, method, methods.ExchangeBindOk())


def _exchange_unbind(channel: Channel, method: methods.ExchangeUnbind) -> None:
    _bind_exchange(channel, metadata.Unbind, method, methods.ExchangeUnbindOk())


def _bind_exchange(
    channel: Channel,
    kind: type[metadata.BindingCommand],
    method: methods.ExchangeBind | methods.ExchangeUnbind,
    reply: Method,
) -> None:
    ends = (strip(method.source), strip(method.destination), False, method.routing_key)
    _bind(channel, kind, ends, method.arguments, method.no_wait, reply)


# ------------------------------------------------------------------ queues


def _queue_declare(channel: Channel, method: methods.QueueDeclare) -> None:
    name = strip(method.queue)
    if name.startswith(REPLY_TO):
        _declare_replies(channel, name, method.no_wait)
        return
    server_named = False
    arguments = dict(method.arguments)
    if not method.passive:
        prefix = arguments.pop("x-name-prefix", "amq.gen-")
        if name == "":
            name, server_named = _server_name(channel, prefix, arguments), True
        elif name.startswith("amq."):
            raise errors.reserved_name("queue", name)
    channel.connection.access.declare_queue(name, arguments, method.passive)

    def declared(result: requests.QueueDeclared) -> None:
        channel.last_queue = result.name
        _reply(
            channel,
            method.no_wait,
            methods.QueueDeclareOk(
                queue=result.name, message_count=result.messages, consumer_count=result.consumers
            ),
        )

    flags = _flags(method)
    flags["durable"] = method.durable and not method.exclusive
    channel.ask(
        requests.QueueDeclareRequest,
        declared,
        name=name,
        exclusive=method.exclusive,
        arguments=arguments,
        server_named=server_named,
        **flags,
    )


def _server_name(channel: Channel, prefix: object, arguments: dict[str, Any]) -> str:
    kind = arguments.get("x-queue-type", "classic")
    if kind != "classic":
        word = f"rabbit_{kind}_queue" if kind == "quorum" else kind
        raise errors.no_server_name(word)
    if not isinstance(prefix, str):
        raise errors.InvalidArgument(f"x-name-prefix is no string but {type(prefix).__name__}")
    if len(prefix.encode()) > NAME_PREFIX_BYTES_MAX:
        raise errors.PreconditionFailed(
            f"Queue name prefix '{strip(prefix)}' exceeds the {NAME_PREFIX_BYTES_MAX}-byte limit"
        )
    return channel.connection.ids.name(strip(prefix))


def _declare_replies(channel: Channel, name: str, no_wait: bool) -> None:
    """Declare the pseudo queue of direct replies: it exists as long as its consumer."""
    connection = channel.connection
    if name not in (REPLY_TO, channel.reply_name) and not connection.view.reply_queue_exists(name):
        raise errors.no_queue(name, connection.vhost)
    channel.last_queue = name
    _reply(channel, no_wait, methods.QueueDeclareOk(queue=name, message_count=0, consumer_count=1))


def _queue_delete(channel: Channel, method: methods.QueueDelete) -> None:
    name = queue_name(channel, strip(method.queue))
    channel.connection.access.delete_queue(name)
    channel.ask(
        requests.QueueDeleteRequest,
        _count_reply(channel, method.no_wait, methods.QueueDeleteOk),
        name=name,
        if_unused=method.if_unused,
        if_empty=method.if_empty,
    )


def _queue_purge(channel: Channel, method: methods.QueuePurge) -> None:
    name = queue_name(channel, method.queue)
    channel.connection.access.read_queue(name)
    channel.ask(
        requests.QueuePurgeRequest,
        _count_reply(channel, method.no_wait, methods.QueuePurgeOk),
        name=name,
    )


def _routing_key(channel: Channel, queue: str, routing_key: str) -> str:
    return channel.last_queue if not queue and not routing_key else routing_key


def _queue_bind(channel: Channel, method: methods.QueueBind) -> None:
    _bind_queue(channel, metadata.Bind, method, method.no_wait, methods.QueueBindOk())


def _queue_unbind(channel: Channel, method: methods.QueueUnbind) -> None:
    _bind_queue(channel, metadata.Unbind, method, False, methods.QueueUnbindOk())


def _bind_queue(
    channel: Channel,
    kind: type[metadata.BindingCommand],
    method: methods.QueueBind | methods.QueueUnbind,
    no_wait: bool,
    reply: Method,
) -> None:
    source, name = strip(method.exchange), strip(queue_name(channel, method.queue))
    routing_key = _routing_key(channel, method.queue, method.routing_key)
    if name.startswith(REPLY_TO):
        raise errors.AccessRefused("cannot bind or unbind to a volatile (direct reply-to) queue")
    _bind(channel, kind, (source, name, True, routing_key), method.arguments, no_wait, reply)


def _bind(
    channel: Channel,
    kind: type[metadata.BindingCommand],
    ends: tuple[str, str, bool, str],
    arguments: dict[str, object],
    no_wait: bool,
    reply: Method,
) -> None:
    """Ask for a change of a binding; ends: as `BindingEnds` has them."""
    connection = channel.connection
    connection.access.bind(*ends)
    command = kind(connection.vhost, *ends, storable(arguments), connection.number)
    _define(channel, command, no_wait, reply)


HANDLERS: dict[type[Method], Any] = {
    methods.ExchangeDeclare: _exchange_declare,
    methods.ExchangeDelete: _exchange_delete,
    methods.ExchangeBind: _exchange_bind,
    methods.ExchangeUnbind: _exchange_unbind,
    methods.QueueDeclare: _queue_declare,
    methods.QueueDelete: _queue_delete,
    methods.QueuePurge: _queue_purge,
    methods.QueueBind: _queue_bind,
    methods.QueueUnbind: _queue_unbind,
}
"""Method to its handler."""
