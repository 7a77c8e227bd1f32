"""A client and a broker to put around a connection.

`Peer` speaks with pamqp's codec, so what the connection writes is read by another codec. The broker
is scripted: `peer.asked()`, `peer.conn.answer`.
"""

from __future__ import annotations

import warnings
from typing import Any

import pamqp.body
import pamqp.commands as spec
import pamqp.frame
import pamqp.header
import pamqp.heartbeat
from pamqp.common import FieldTable

from warren_broker.access import requests
from warren_broker.access.connection_config import ConnectionConfig
from warren_broker.access.requests import ExchangeFacts, RequestDone
from warren_broker.clients091.connection import Connection
from warren_broker.cluster.ids import Ids
from warren_machines.metadata.permissions import ALL as ALL_PERMITTED
from warren_machines.metadata.permissions import Permissions
from warren_machines.queue.commands import Checkout, Delivery
from warren_wire.amqp091 import properties
from warren_wire.arguments import Kind
from warren_wire.block.block import Block, encode
from warren_wire.kernel import Selection

warnings.filterwarnings("ignore", module="pamqp")

CAPABLE: FieldTable = {
    "consumer_cancel_notify": True,
    "authentication_failure_close": True,
    "connection.blocked": True,
    "basic.nack": True,
    "publisher_confirms": True,
}


class Rights:
    """What every user of a test has."""

    held: Permissions | None
    topics: Permissions | None
    user_tags: tuple[str, ...]

    def permissions(self, vhost: str, user: str) -> Permissions | None:
        return self.held

    def topic_permissions(self, vhost: str, user: str, exchange: str) -> Permissions | None:
        return self.topics

    def tags(self, user: str) -> tuple[str, ...]:
        return self.user_tags


class View(Rights):
    """Definitions by hand: exchanges, queue types, permissions."""

    def __init__(self) -> None:
        self.exchanges = {
            "amq.direct": ExchangeFacts(kind="direct"),
            "amq.topic": ExchangeFacts(kind="topic"),
            "inner": ExchangeFacts(kind="direct", internal=True),
        }
        self.held = ALL_PERMITTED
        self.topics = None
        self.user_tags = ()
        self.queue_types: dict[str, Kind] = {}
        self.reply_names: set[str] = set()
        self.channels_limit: int | None = None
        self.traced_vhosts: set[str] = set()

    def exchange(self, vhost: str, name: str) -> ExchangeFacts | None:
        assert name, "the default exchange is never asked for"
        return self.exchanges.get(name)

    def queue_type(self, vhost: str, queue: str) -> Kind | None:
        return self.queue_types.get(queue)

    def channels_max(self, user: str) -> int | None:
        return self.channels_limit

    def reply_queue_exists(self, name: str) -> bool:
        return name in self.reply_names


class Numbers(Ids):
    """Ids in a row."""

    def __init__(self) -> None:
        super().__init__("a")
        self.sessions = self.consumers = self.names = 0

    def session(self) -> int:
        self.sessions += 1
        return 100 + self.sessions

    def consumer(self) -> int:
        self.consumers += 1
        return 1000 + self.consumers

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names:022d}"

    def reply_name(self) -> str:
        return self.name("amq.rabbitmq.reply-to.")


class Peer:
    """A client of one connection."""

    def __init__(self, **config: Any) -> None:
        self.view = View()
        self.conn = Connection(ConnectionConfig(**config), self.view, Numbers(), 9)
        self.conn_requests: list[Any] = []
        self.left = b""
        self.frame_max = 131_072

    # -------------------------------------------------------------- client

    def send(self, frame: Any, channel: int = 1) -> None:
        self.conn.receive(pamqp.frame.marshal(frame, channel))

    def publish(
        self,
        body: bytes = b"hello",
        exchange: str = "",
        key: str = "q",
        mandatory: bool = False,
        channel: int = 1,
        raw: bytes | None = None,
        count: int = 1,
        **given: Any,
    ) -> None:
        """The frames of `count` equal messages in one go; raw: properties as bytes."""
        content = spec.Basic.Properties(**given)
        method = spec.Basic.Publish(exchange=exchange, routing_key=key, mandatory=mandatory)
        header = pamqp.frame.marshal(pamqp.header.ContentHeader(0, len(body), content), channel)
        if raw is not None:
            payload = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + raw
            header = (
                b"\x02"
                + channel.to_bytes(2, "big")
                + len(payload).to_bytes(4, "big")
                + payload
                + b"\xce"
            )
        message = pamqp.frame.marshal(method, channel) + header
        if body:
            message += pamqp.frame.marshal(pamqp.body.ContentBody(body), channel)
        self.conn.receive(message * count)

    def got(self) -> list[tuple[int, Any]]:
        """Whole frames that have come: (channel, pamqp's frame)."""
        self.left += b"".join(bytes(part) for part in self.conn.take_output())
        frames = []
        while self.left:
            if self.left.startswith(b"AMQP"):
                head, self.left = self.left[:8], self.left[8:]
                frames.append((0, head))
                continue
            used, channel, frame = pamqp.frame.unmarshal(self.left)
            assert used
            self.left = self.left[used:]
            frames.append((channel, frame))
        return frames

    def one(self, kind: Any, channel: int = 1) -> Any:
        """The single frame that has come."""
        frames = self.got()
        assert len(frames) == 1, [frame for _, frame in frames]
        assert frames[0][0] == channel, frames
        assert isinstance(frames[0][1], kind), frames[0][1]
        return frames[0][1]

    def nothing(self) -> None:
        frames = self.got()
        assert not frames, frames

    # -------------------------------------------------------------- broker

    def asked(self) -> list[Any]:
        return self.conn.take_requests()

    def the(self, kind: Any) -> Any:
        """The single request that was made."""
        made = self.asked()
        assert len(made) == 1, made
        assert isinstance(made[0], kind), made
        return made[0]

    def answer(self, kind: Any, result: Any = None) -> Any:
        """Answer the single request."""
        request = self.the(kind)
        self.conn.answer(request.token, RequestDone() if result is None else result)
        return request

    # -------------------------------------------------------------- both

    def connect(
        self,
        capabilities: FieldTable | None = None,
        heartbeat: int = 60,
        frame_max: int = 131_072,
    ) -> Peer:
        self.conn.receive(b"AMQP\x00\x00\x09\x01")
        start = self.one(spec.Connection.Start, 0)
        assert start.mechanisms == "PLAIN AMQPLAIN"
        given = CAPABLE if capabilities is None else capabilities
        self.send(
            spec.Connection.StartOk({"capabilities": given}, "PLAIN", "\0guest\0secret", "en_US"), 0
        )
        login = self.answer(requests.AuthenticateRequest)
        assert (login.user, login.password) == ("guest", "secret")
        self.one(spec.Connection.Tune, 0)
        self.frame_max = frame_max
        self.send(spec.Connection.TuneOk(2047, frame_max, heartbeat), 0)
        self.send(spec.Connection.Open("/"), 0)
        opened = self.answer(requests.OpenVhostRequest)
        assert (opened.vhost, opened.user) == ("/", "guest")
        self.one(spec.Connection.OpenOk, 0)
        return self

    def open(self, channel: int = 1) -> Peer:
        self.send(spec.Channel.Open(), channel)
        self.one(spec.Channel.OpenOk, channel)
        up = self.the(requests.SessionUpRequest)
        assert up.channel == channel
        return self

    def consume(
        self,
        queue: str = "q",
        tag: str = "c",
        channel: int = 1,
        no_ack: bool = False,
        **arguments: Any,
    ) -> Checkout:
        self.send(
            spec.Basic.Consume(queue=queue, consumer_tag=tag, no_ack=no_ack, arguments=arguments),
            channel,
        )
        made = self.asked()
        assert isinstance(made[0], requests.ConsumeRequest), made
        self.conn_requests = made[1:]
        self.conn.answer(made[0].token, RequestDone())
        assert self.one(spec.Basic.ConsumeOk, channel).consumer_tag == tag
        return made[0].command

    def channel_closed(
        self, code: int, text: str, channel: int = 1, at: tuple[int, int] | None = None
    ) -> None:
        """The channel was closed with that; answer close-ok; it can be opened again."""
        close = self.one(spec.Channel.Close, channel)
        assert close.reply_code == code, close.reply_text
        assert text in close.reply_text, close.reply_text
        if at is not None:
            assert (close.class_id, close.method_id) == at
        down = self.asked()[-1]
        assert isinstance(down, requests.SessionDownRequest), down
        self.send(spec.Channel.CloseOk(), channel)
        self.open(channel)

    def connection_closed(self, code: int, text: str) -> None:
        frames = self.got()
        close = frames[-1][1]
        assert isinstance(close, spec.Connection.Close), frames
        assert frames[-1][0] == 0
        assert close.reply_code == code, close.reply_text
        assert text in close.reply_text, close.reply_text
        assert not self.conn.closed
        left = self.asked()[-1]
        assert isinstance(left, requests.CloseConnectionRequest)
        self.send(spec.Connection.CloseOk(), 0)
        assert self.conn.closed


def message(body: bytes = b"hello", **given: Any) -> Block:
    """A block of one message."""
    return messages(1, body, **given)


def messages(count: int, body: bytes = b"hello", **given: Any) -> Block:
    """A block of equal messages, published to the default exchange with key `q`."""
    raw = properties.encode(properties.Properties(**given))
    return Block.decode(encode([body] * count, [raw] * count, (b"", b"q"), 4, None))


def run(
    first_msg_id: int, count: int = 1, first: int = 0, failed: int = 0, acquired: int = 0
) -> Delivery:
    """A delivery of `count` messages of a block at index 1."""
    return Delivery(first_msg_id, 1, first, first + count - 1, failed, acquired)


def whole(publish: requests.PublishRequest) -> Selection:
    """A part that is all of a publish."""
    return Selection(publish.table, publish.first, publish.last)


def tags(peer: Peer) -> list[int]:
    """Return the delivery tags that have arrived."""
    return [frame.delivery_tag for _, frame in peer.got() if frame.name == "Basic.Deliver"]


def settles(peer: Peer) -> list[tuple[str, int, tuple[tuple[int, int], ...]]]:
    """Return the settlements that the connection has requested: (name, consumer, msg_ids)."""
    return [(type(request).__name__, request.consumer, request.msg_ids) for request in peer.asked()]
