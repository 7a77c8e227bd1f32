"""The events about one client's connection, with headers named as by RabbitMQ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from warren_broker.access.requests import ConsumeRequest
from warren_broker.cluster.client.node_messages import EventExchange
from warren_wire.amqp091.fields import Field

CLIENT_PROPERTIES = (
    *("product", "version", "platform", "information", "connection_name", "copyright"),
)
"""Properties of a client that its events have."""
TEXT_MAX = 1_000
"""Characters kept of each of them."""
CAPABILITIES_MAX = 12


def said_of_itself(client: Mapping[object, object]) -> dict[str, str]:
    """Return what is shown of a client's properties: texts, cut to TEXT_MAX."""
    said = {}
    for name in CLIENT_PROPERTIES:
        value = client.get(name)
        value = value.value if isinstance(value, Field) else value
        if isinstance(value, str):
            said[name] = value[:TEXT_MAX]
    return said


def capabilities_of(client: Mapping[object, object]) -> dict[str, bool]:
    """Return what a client says it understands; at most CAPABILITIES_MAX."""
    given = client.get("capabilities")
    given = given.value if isinstance(given, Field) else given
    found: dict[str, bool] = {}
    for name, value in given.items() if isinstance(given, Mapping) else ():
        value = value.value if isinstance(value, Field) else value
        if isinstance(name, str) and isinstance(value, bool) and len(found) < CAPABILITIES_MAX:
            found[name[:TEXT_MAX]] = value
    return found


class ConnectionEvents:
    """Reports what becomes of a connection, its channels and its consumers.

    Invariant: whatever was reported as created is reported as closed or deleted once; nothing is
    reported, and nothing kept, while the event exchange is off.
    """

    __slots__ = ("_channels", "_consumers", "_created", "_events", "_peer", "_protocol", "_ssl")

    def __init__(self, events: EventExchange, protocol: str, peer: str, ssl: bool) -> None:
        self._events = events
        self._protocol = protocol
        self._peer = peer
        self._ssl = ssl
        self._created: dict[str, object] = {}
        self._channels: dict[int, int] = {}
        self._consumers: dict[int, tuple[int, dict[str, Any]]] = {}

    def _tell(self, key: str, facts: Mapping[str, object]) -> None:
        user = self._created["user"]
        self._events.tell(key, {**facts, "user_who_performed_action": user})

    def logged_in(self, user: str, mechanism: str, error: str | None) -> None:
        """Report a login; error: why it was refused."""
        if not self._events.on:
            return
        facts = {"name": user, "auth_mechanism": mechanism, **self._socket()}
        if error is None:
            self._events.tell("user.authentication.success", facts)
        else:
            self._events.tell("user.authentication.failure", {**facts, "error": error})

    def _socket(self) -> dict[str, Any]:
        host, _, port = self._peer.rpartition(":")
        return {
            "connection_name": self._peer,
            "connection_type": "network",
            "peer_host": host,
            "peer_port": int(port) if port.isdigit() else 0,
            "protocol": self._protocol,
            "ssl": self._ssl,
            "node": self._events.node,
        }

    def opened(self, user: str, vhost: str, client: Mapping[Any, Any]) -> None:
        """Report that the connection is open."""
        if not self._events.on or self._created:
            return
        said = said_of_itself(client)
        facts = {"name": self._peer, "user": user, "vhost": vhost, "client_properties": said}
        socket = self._socket()
        socket["type"] = socket.pop("connection_type")
        del socket["connection_name"]
        if "connection_name" in said:
            socket["user_provided_name"] = said["connection_name"]
        self._created = {**facts, **socket}
        self._tell("connection.created", self._created)

    def closed(self) -> None:
        """Report the end of the connection, and of what it still has."""
        if not self._created:
            return
        for session in [*self._channels]:
            self.channel_closed(session)
        names = ("name", "node", "user", "vhost", "client_properties")
        self._tell("connection.closed", {name: self._created[name] for name in names})
        self._created = {}

    # ------------------------------------------------------------ channels

    def channel_created(self, session: int, channel: int) -> None:
        """Report a channel."""
        if self._created:
            self._channels[session] = channel
            self._tell(
                "channel.created",
                {
                    **self._channel(channel),
                    "connection": self._peer,
                    "number": channel,
                    "user": self._created["user"],
                    "vhost": self._created["vhost"],
                },
            )

    def _channel(self, channel: int) -> dict[str, Any]:
        return {"name": f"{self._peer} ({channel})"}

    def channel_closed(self, session: int) -> None:
        """Report the end of a channel, and of its consumers; repeats are harmless."""
        channel = self._channels.pop(session, None)
        if channel is None:
            return
        of_channel = [one for one, (owner, _) in self._consumers.items() if owner == session]
        self.consumers_deleted(of_channel)
        self._tell("channel.closed", self._channel(channel))

    # ------------------------------------------------------------ consumers

    def consumer_created(self, asked: ConsumeRequest) -> None:
        """Report a consumer, unless its channel has ended meanwhile."""
        channel = self._channels.get(asked.session)
        if channel is None:
            return
        facts = {
            "consumer_tag": asked.command.tag,
            "queue": asked.queue,
            "vhost": self._created["vhost"],
            "channel": self._channel(channel)["name"],
        }
        self._consumers[asked.command.consumer] = (asked.session, facts)
        more = {
            "exclusive": asked.command.exclusive,
            "ack_required": not asked.command.no_ack,
            "prefetch_count": asked.command.prefetch,
            "arguments": dict(asked.arguments),
        }
        self._tell("consumer.created", {**facts, **more})

    def consumers_deleted(self, consumers: Iterable[int]) -> None:
        """Report the end of consumers; repeats are harmless."""
        for consumer in consumers:
            known = self._consumers.pop(consumer, None)
            if known is not None:
                self._tell("consumer.deleted", known[1])
