"""The order in which a channel's items are handled.

An item (a method, a run of publishes, a run of acknowledgements) that needs the broker's answer
stops its channel: what follows waits in `inbox` until the answer arrives, so replies keep their
order. The other channels of the connection are not affected.
"""

from __future__ import annotations

from typing import Any

from warren_broker.access import requests
from warren_broker.clients091 import consume, declare, publish
from warren_broker.clients091.state import Channel, ChannelItem, TableRun, Then, to_wait
from warren_wire.amqp091 import methods
from warren_wire.amqp091.methods import Method
from warren_wire.errors import ChannelMisused, CommandInvalid, NotImplementedHere, Refusal
from warren_wire.kernel import AckRun


def take(channel: Channel, item: ChannelItem, argument_bytes: int = 0) -> None:
    """Handle an item now, or after the items before it; argument_bytes: of a method."""
    if channel.state in ("closing", "ending"):
        return
    if channel.waiting or channel.inbox:
        waiting, size = to_wait(item, argument_bytes)
        channel.inbox.append((waiting, size))
        channel.waits(size)
        return
    _carry_out(channel, item)


def answered(channel: Channel, token: requests.Token, result: Any, then: Then, at: int) -> None:
    """Handle the broker's answer to an `ask` made by the method with code `at`."""
    if token != channel.waiting:
        return  # the channel was closed meanwhile
    channel.waiting = 0
    channel.at = at
    try:
        if isinstance(result, Refusal):
            raise result
        then(result)
    except Refusal as refusal:
        channel.connection.refuse(channel, refusal)
    go_on(channel)


def go_on(channel: Channel) -> None:
    """Handle the items that waited, up to the next that needs an answer."""
    while channel.inbox and not channel.waiting and channel.state in ("new", "open"):
        item, size = channel.inbox.popleft()
        channel.waits(-size)
        _carry_out(channel, item)


def _carry_out(channel: Channel, item: ChannelItem) -> None:
    try:
        if isinstance(item, TableRun):
            channel.at = methods.BasicPublish.code
            _must_be_open(channel)
            publish.publish(channel, item)
        elif isinstance(item, AckRun):
            channel.at = methods.BasicAck.code
            _must_be_open(channel)
            consume.acknowledge(channel, item)
        elif isinstance(item, Refusal):
            channel.at = methods.BasicPublish.code
            raise item
        else:
            channel.at = item.code
            _carry_out_method(channel, item)
    except Refusal as refusal:
        channel.connection.refuse(channel, refusal)


def _must_be_open(channel: Channel) -> None:
    if channel.state != "open":
        raise ChannelMisused("expected 'channel.open'")


def _carry_out_method(channel: Channel, method: Method) -> None:
    if isinstance(method, methods.ChannelOpen):
        _open(channel)
        return
    _must_be_open(channel)
    handler = _HANDLERS.get(type(method))
    if handler is None:
        raise CommandInvalid(f"unimplemented method {method.name}")
    handler(channel, method)


def _open(channel: Channel) -> None:
    if channel.state != "new":
        raise ChannelMisused("second 'channel.open' seen")
    connection = channel.connection
    if connection.view.channels_max(connection.user) is None:
        _opened(channel)
    else:
        channel.at = 0  # as in RabbitMQ, the refusal names no method
        channel.ask(requests.CheckChannelsRequest, lambda _: _opened(channel))


def _opened(channel: Channel) -> None:
    channel.state = "open"
    channel.request(requests.SessionUpRequest(session=channel.session, channel=channel.number))
    channel.send(methods.ChannelOpenOk())


def _close(channel: Channel, method: methods.ChannelClose) -> None:
    channel.half_close("ending")

    def gone(_: requests.RequestDone) -> None:
        channel.send(methods.ChannelCloseOk())
        channel.connection.free(channel)

    channel.end(gone)


def _flow(channel: Channel, method: methods.ChannelFlow) -> None:
    if not method.active:
        raise NotImplementedHere("active=false")
    channel.send(methods.ChannelFlowOk(active=True))


def _flow_ok(channel: Channel, method: methods.ChannelFlowOk) -> None:
    """Ignore channel.flow-ok: the server never sends channel.flow."""


def _access(channel: Channel, method: methods.AccessRequest) -> None:
    channel.send(methods.AccessRequestOk(ticket=1))


_HANDLERS: dict[type[Method], Any] = {
    methods.ChannelClose: _close,
    methods.ChannelFlow: _flow,
    methods.ChannelFlowOk: _flow_ok,
    methods.AccessRequest: _access,
    **declare.HANDLERS,
    **publish.HANDLERS,
    **consume.HANDLERS,
}
