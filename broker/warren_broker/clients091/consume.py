"""A channel's consumers: consume, cancel, get, deliveries, acknowledgements, prefetch."""

from __future__ import annotations

from typing import Any

from warren_broker.access import requests
from warren_broker.access.message_checks import REPLY_TO
from warren_broker.clients091 import global_prefetch
from warren_broker.clients091.declare import queue_name
from warren_broker.clients091.deliveries import answer_get, hand_out
from warren_broker.clients091.delivery_tags import Held, by_consumer
from warren_broker.clients091.state import Channel, ChannelConsumer
from warren_broker.cluster.client.relayed import draw_origin
from warren_machines.queue import commands
from warren_machines.queue.commands import Delivery, rest_of
from warren_wire import errors
from warren_wire.amqp091 import codec, methods
from warren_wire.amqp091.methods import Method
from warren_wire.arguments import ConsumeArguments, consume_arguments
from warren_wire.kernel import (
    ACK,
    NACK_DISCARD,
    NACK_REQUEUE,
    REJECT_DISCARD,
    REJECT_REQUEUE,
    AckRun,
    MessageTable,
    Unsendable,
    fitting,
)

_ACK_METHODS = {
    ACK: methods.BasicAck.code,
    NACK_REQUEUE: methods.BasicNack.code,
    NACK_DISCARD: methods.BasicNack.code,
    REJECT_REQUEUE: methods.BasicReject.code,
    REJECT_DISCARD: methods.BasicReject.code,
}

# ------------------------------------------------------------------ consume, cancel, get


def _qos(channel: Channel, method: methods.BasicQos) -> None:
    if method.prefetch_size:
        raise errors.NotImplementedHere(f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.global_prefetch, channel.shares = method.prefetch_count, True
    else:
        channel.prefetch = method.prefetch_count
        channel.global_prefetch = 0  # as RabbitMQ: the new kind of limit replaces the old one
    channel.send(methods.BasicQosOk())
    global_prefetch.changed(channel)


def _new_tag(channel: Channel, tag: str) -> str:
    """Return the tag of a new consumer, drawn if it has none; there may be one more."""
    if tag and (tag in channel.consumers or tag == channel.reply_consumer):
        raise errors.NotAllowed(f"attempt to reuse consumer tag '{tag}'")
    most = channel.connection.config.consumers_max
    if len(channel.connection.consumers) >= most:
        raise errors.NotAllowed(
            f"{most} consumers on this connection (limits.consumers_max): cancel some"
        )
    return tag or channel.connection.ids.name("amq.ctag-")


def _consume(channel: Channel, method: methods.BasicConsume) -> None:
    name = queue_name(channel, method.queue)
    tag = _new_tag(channel, method.consumer_tag)
    if name == REPLY_TO:
        _consume_replies(channel, method, tag)
        return
    connection = channel.connection
    connection.access.read_queue(name)
    kind = connection.view.queue_type(connection.vhost, name)
    asked = ConsumeArguments()
    if kind is not None:  # a missing queue is reported first: 404
        asked = consume_arguments(connection.vhost, name, kind, method.arguments)
    explicit = bool(channel.global_prefetch) and not method.no_ack
    if explicit and kind == "quorum":
        what = errors.named("queue", name, connection.vhost)
        raise errors.NotImplementedHere(f"{what} does not support global qos")
    consumer = ChannelConsumer(
        number=connection.ids.consumer(),
        tag=tag,
        queue=name,
        channel=channel,
        no_ack=method.no_ack,
        prefetch=channel.prefetch,
        explicit=explicit,
        asked=asked,
        exclusive=method.exclusive,
    )
    channel.consumers[tag] = consumer
    connection.consumers[consumer.number] = consumer

    channel.ask(
        requests.ConsumeRequest,
        lambda _: _started(consumer, method.no_wait),
        queue=name,
        command=commands.Checkout(
            consumer.number,
            channel.session,
            tag,
            prefetch=0 if method.no_ack else channel.prefetch,
            explicit_credit=explicit,
            priority=asked.priority,
            no_ack=method.no_ack,
            exclusive=method.exclusive,
            timeout_ms=asked.timeout_ms,
            relay=asked.relay,
            origin=draw_origin() if asked.relay else 0,
        ),
        arguments=method.arguments,
        # A client that does not understand basic.cancel would wait for messages for ever.
        cancel_on_failover=asked.cancel_on_failover
        and "consumer_cancel_notify" in connection.capabilities,
    )
    global_prefetch.changed(channel)


def _started(consumer: ChannelConsumer, no_wait: bool) -> None:
    if not no_wait:
        consumer.channel.send(methods.BasicConsumeOk(consumer_tag=consumer.tag))
    consumer.started = True
    early, consumer.early = consumer.early, []
    for delivery, block in early:
        deliver(consumer, delivery, block)
    if consumer.channel.connection.rights is not None:  # there may be a new token since
        cancel_unless_readable(consumer)


def _consume_replies(channel: Channel, method: methods.BasicConsume, tag: str) -> None:
    if not method.no_ack:
        raise errors.PreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_consumer:
        raise errors.PreconditionFailed("reply consumer already set")
    channel.reply_consumer = tag
    channel.reply_name = channel.connection.ids.reply_name()
    channel.request(requests.OpenRepliesRequest(session=channel.session, name=channel.reply_name))
    if not method.no_wait:
        channel.send(methods.BasicConsumeOk(consumer_tag=tag))


def _cancel(channel: Channel, method: methods.BasicCancel) -> None:
    reply = methods.BasicCancelOk(consumer_tag=method.consumer_tag)
    consumer = channel.consumers.get(method.consumer_tag)
    if consumer is None:
        if method.consumer_tag and method.consumer_tag == channel.reply_consumer:
            channel.close_replies()
        if not method.no_wait:
            channel.send(reply)  # an unknown tag is no error: the server may have cancelled it
        return

    def cancelled(_: requests.RequestDone) -> None:
        remove(consumer)
        if not method.no_wait:
            channel.send(reply)

    channel.ask(requests.CancelRequest, cancelled, consumer=consumer.number)


def cancel_unless_readable(consumer: ChannelConsumer) -> None:
    """Cancel a consumer if the user may no longer read its queue; its channel does not wait."""
    channel = consumer.channel
    connection = channel.connection
    if not consumer.started:
        return  # it is looked at when it has started
    try:
        connection.access.read_queue(consumer.queue)
        return
    except errors.AccessRefused:
        pass

    def cancelled(result: Any) -> None:
        if connection.consumers.get(consumer.number) is not consumer:
            return  # by the client, or with its channel
        remove(consumer)
        if "consumer_cancel_notify" in connection.capabilities:
            channel.send(methods.BasicCancel(consumer_tag=consumer.tag, no_wait=True))

    connection.requests.append(
        requests.CancelRequest(
            token=connection.expect(None, cancelled),
            session=channel.session,
            consumer=consumer.number,
        )
    )


def _cancel_ok(channel: Channel, method: methods.BasicCancelOk) -> None:
    """Ignore the answer to the server's basic.cancel, which has no_wait."""


def remove(consumer: ChannelConsumer) -> None:
    """Remove a consumer; its unacknowledged deliveries stay until settled."""
    channel = consumer.channel
    if channel.consumers.get(consumer.tag) is consumer:
        del channel.consumers[consumer.tag]
    channel.connection.consumers.pop(consumer.number, None)
    for held in channel.held_back.take_of(consumer.number):
        global_prefetch.give_back(*held[:2])  # with the session, or now
    channel.past[consumer.number] = None
    channel.forget_past(consumer.number)


def _get(channel: Channel, method: methods.BasicGet) -> None:
    name = queue_name(channel, method.queue)
    connection = channel.connection
    connection.access.read_queue(name)
    number = channel.getter(name)

    def got(result: requests.GotMessage | requests.GotNothing) -> None:
        if result.getter is not None:
            # What the old number holds must not be taken for the new queue's: they count alike.
            channel.past[number] = None
            channel.getters[name] = result.getter
            channel.forget_past(number)
        if isinstance(result, requests.GotNothing):
            channel.send(methods.BasicGetEmpty())
            return
        getter = result.getter or number
        if not answer_get(channel, getter, name, result, method.no_ack):
            channel.send(methods.BasicGetEmpty())

    channel.ask(requests.GetRequest, got, consumer=number, queue=name, no_ack=method.no_ack)


# ------------------------------------------------------------------ deliveries


def deliver(consumer: ChannelConsumer, delivery: Delivery, block: object) -> None:
    """Send a run of messages to the client, or hold it back by the channel-wide prefetch."""
    if not consumer.started:
        consumer.early.append((delivery, block))  # bounded by its prefetch, or the queue's window
        return
    delivery = rest_of(delivery, consumer.next_msg_id - delivery.first_msg_id)
    if delivery.first > delivery.last:
        return  # repeated by a new leader
    consumer.next_msg_id = delivery.first_msg_id + delivery.last - delivery.first + 1
    channel = consumer.channel
    if (channel.global_prefetch or channel.held_back.runs) and not consumer.no_ack:
        channel.held_back.append(consumer.number, (consumer, delivery, block))
        global_prefetch.release(channel)
        return
    hand_out(consumer, delivery, block)


def deliver_reply(channel: Channel, table: MessageTable, at: int) -> None:
    """Send a direct reply, message `at` of a table, to the channel's reply consumer."""
    connection = channel.connection
    try:
        shown = fitting(at, table.properties_of(at), connection.frame_max)
    except Unsendable:
        return  # direct replies are at most once: one that does not fit the frames is dropped
    tag = channel.deliveries.delivered(0, 0, 1, keep=False)
    route = table.route(at)
    channel.send(
        methods.BasicDeliver(
            consumer_tag=channel.reply_consumer,
            delivery_tag=tag,
            exchange=route.exchange.decode("utf-8", "surrogateescape"),
            routing_key=route.routing_key.decode("utf-8", "surrogateescape"),
        )
    )
    for frame in codec.content_frames(channel.number, shown, table.body(at), connection.frame_max):
        connection.out += frame
    if connection.vhost in connection.traced_vhosts:
        trace = requests.TraceRequest(
            channel=channel.number,
            queue=channel.reply_name,
            messages=table,
            first=at,
            last=at + 1,
        )
        channel.request(trace)


# ------------------------------------------------------------------ acknowledgements


def acknowledge(channel: Channel, run: AckRun) -> None:
    """Settle the run's ranges in order, up to the first tag that is not outstanding."""
    for kind, first, last, multiple in run.ranges:
        channel.at = _ACK_METHODS[kind]
        refusal = None
        if multiple:
            held = channel.deliveries.take_up_to(last)
        else:
            held, refusal = channel.deliveries.take(first, last)
        if held and channel.tx is not None:
            channel.tx.acks.append((kind, held))
        elif held:
            settle(channel, kind, held)
        if refusal is not None:
            raise refusal


def settle(channel: Channel, kind: int, held: Held) -> None:
    """Report settled deliveries to the queues; kind as in kernel.items."""
    settled = by_consumer(held)
    for number, msg_ids in settled:
        if kind == ACK:
            channel.request(commands.Settle(number, msg_ids))
        elif kind in (NACK_REQUEUE, REJECT_REQUEUE):
            channel.request(commands.Return(number, msg_ids, failed=kind == REJECT_REQUEUE))
        else:
            channel.request(commands.Discard(number, msg_ids, failed=kind == REJECT_DISCARD))
        channel.deliveries.settled(number, msg_ids)
        if channel.shares:
            global_prefetch.settled(channel, number, msg_ids)
    if channel.past:
        for number, _ in settled:
            channel.forget_past(number)
    if channel.shares or channel.held_back.runs:
        global_prefetch.changed(channel)


def _recover_async(channel: Channel, method: methods.BasicRecoverAsync) -> None:
    _recover(channel, method.requeue)


def _recover_sync(channel: Channel, method: methods.BasicRecover) -> None:
    _recover(channel, method.requeue)
    channel.send(methods.BasicRecoverOk())


def _recover(channel: Channel, requeue: bool) -> None:
    if not requeue:
        raise errors.NotImplementedHere("requeue=false")
    settle(channel, NACK_REQUEUE, channel.deliveries.take_up_to(0))


HANDLERS: dict[type[Method], Any] = {
    methods.BasicQos: _qos,
    methods.BasicConsume: _consume,
    methods.BasicCancel: _cancel,
    methods.BasicCancelOk: _cancel_ok,
    methods.BasicGet: _get,
    methods.BasicRecover: _recover_sync,
    methods.BasicRecoverAsync: _recover_async,
}
"""Method to its handler."""
