"""What a node counts from its start on, under RabbitMQ's names (`prometheus`)."""

from __future__ import annotations

from itertools import product
from typing import Final, Literal, NamedTuple, TypeAlias

from warren_wire.arguments import Kind

Strategy: TypeAlias = Literal["disabled", "at_most_once", "at_least_once"]
Labels: TypeAlias = tuple[str, ...]
AMQP_091: Final = "amqp091"
AMQP_10: Final = "amqp10"
HTTP_LABEL: Final = "http"
"""The label of the HTTP API, where logins are counted."""
PROTOCOLS: Final = {"0.9.1": AMQP_091, "1.0": AMQP_10}
"""A protocol's version to its label."""
QUEUE_TYPES: Final[dict[Kind, str]] = {
    "classic": "rabbit_classic_queue",
    "quorum": "rabbit_quorum_queue",
}


class Family(NamedTuple):
    """Counters of one name.

    labels  names of their labels
    prefix  of the name that is shown: RabbitMQ's, or Warren's own
    values  the labels of each counter; all of them are shown from the start, with 0
    """

    text: str
    labels: Labels = ()
    values: tuple[Labels, ...] = ((),)
    prefix: str = "rabbitmq_"


_DEATH_LABELS: Final = ("queue_type", "dead_letter_strategy")
_CLASSIC_DEATHS: Final = tuple(product(["rabbit_classic_queue"], ["at_most_once", "disabled"]))
_KEPT_LETTERS: Final = ("rabbit_quorum_queue", "at_least_once")
_UNKEPT_DEATHS: Final = tuple(product(["rabbit_quorum_queue"], ["at_most_once", "disabled"]))
_BY_PROTOCOL: Final = (("protocol",), ((AMQP_091,), (AMQP_10,)))
_BY_LOGIN: Final = (("protocol",), ((AMQP_091,), (AMQP_10,), (HTTP_LABEL,)))
_BY_QUEUE: Final = (
    ("protocol", "queue_type"),
    tuple(product(PROTOCOLS.values(), QUEUE_TYPES.values())),
)

REFUSALS: Final = ("connections_max", "open_files", "vhost_limit", "user_limit")
"""Why a connection is refused, but for its login."""
FAMILIES: Final[dict[str, Family]] = {
    "global_messages_dead_lettered_confirmed": Family(
        "Dead letters that every target queue has confirmed", _DEATH_LABELS, (_KEPT_LETTERS,)
    ),
    "global_messages_dead_lettered_delivery_limit": Family(
        "Messages that exceeded the delivery limit of their queue",
        _DEATH_LABELS,
        (_KEPT_LETTERS, *_UNKEPT_DEATHS),
    ),
    "global_messages_dead_lettered_expired": Family(
        "Messages whose time to live ended",
        _DEATH_LABELS,
        (*_CLASSIC_DEATHS, _KEPT_LETTERS, *_UNKEPT_DEATHS),
    ),
    "global_messages_dead_lettered_maxlen": Family(
        "Messages dropped from the head of a queue that exceeded its length limit",
        _DEATH_LABELS,
        (*_CLASSIC_DEATHS, *_UNKEPT_DEATHS),
    ),
    "global_messages_dead_lettered_rejected": Family(
        "Messages that consumers rejected",
        _DEATH_LABELS,
        (*_CLASSIC_DEATHS, _KEPT_LETTERS, *_UNKEPT_DEATHS),
    ),
    "global_messages_received": Family("Messages received from publishers", *_BY_PROTOCOL),
    "global_messages_received_confirm": Family(
        "Messages received from publishers that expect confirms", *_BY_PROTOCOL
    ),
    "global_messages_routed": Family("Messages routed, once for each queue", *_BY_PROTOCOL),
    "global_messages_confirmed": Family("Messages confirmed to publishers", *_BY_PROTOCOL),
    "global_messages_unroutable_returned": Family(
        "Messages for no queue, returned to their publishers", *_BY_PROTOCOL
    ),
    "global_messages_unroutable_dropped": Family(
        "Messages for no queue, of which their publishers are not told", *_BY_PROTOCOL
    ),
    "global_messages_delivered": Family("Messages delivered to clients", *_BY_QUEUE),
    "global_messages_delivered_consume_manual_ack": Family(
        "Messages delivered to consumers that acknowledge them", *_BY_QUEUE
    ),
    "global_messages_delivered_consume_auto_ack": Family(
        "Messages delivered to consumers that do not acknowledge", *_BY_QUEUE
    ),
    "global_messages_delivered_get_manual_ack": Family(
        "Messages fetched by basic.get, to be acknowledged", *_BY_QUEUE
    ),
    "global_messages_delivered_get_auto_ack": Family(
        "Messages fetched by basic.get, without acknowledgement", *_BY_QUEUE
    ),
    "global_messages_get_empty": Family("basic.get that found no message", *_BY_QUEUE),
    "global_messages_redelivered": Family("Messages delivered again", *_BY_QUEUE),
    "global_messages_acknowledged": Family("Messages acknowledged by clients", *_BY_QUEUE),
    "auth_attempts": Family("Logins of clients; a request over HTTP is one", *_BY_LOGIN),
    "auth_attempts_succeeded": Family("Logins of clients that were right", *_BY_LOGIN),
    "auth_attempts_failed": Family("Logins of clients that were refused", *_BY_LOGIN),
    "connections_opened": Family("Connections that have opened a vhost"),
    "connections_closed": Family("Connections that have ended"),
    "queues_declared": Family("Queues that clients have declared, new or there already"),
    "queues_created": Family("Queues that clients have declared and that were new"),
    "queues_deleted": Family("Queues that clients have deleted, or their last consumer"),
    "channels_opened": Family("Channels opened"),
    "channels_closed": Family("Channels closed, or ended with their connections"),
    "connections_refused": Family(
        "Connections that were refused or ended because of a limit, by what was reached",
        ("reason",),
        tuple((reason,) for reason in REFUSALS),
        "warren_",
    ),
    "trace_spans": Family(
        "Spans of messages: recorded; of these exported, refused by the collector; dropped, as too "
        "many waited; and how often none was begun because of the limit per second",
        ("outcome",),
        tuple((outcome,) for outcome in ("recorded", "exported", "refused", "dropped", "limited")),
        "warren_",
    ),
    "job_messages_done": Family(
        "Messages that jobs of queues led here have moved, copied or deleted", prefix="warren_"
    ),
}
"""Name, without prefix and `_total`, to its counters."""
SIZES: Final = (*(10**power for power in range(2, 8)), 50_000_000, 100_000_000)
"""RabbitMQ's bounds of the sizes of messages."""
RECEIVED: Final = tuple(("global_messages_received", (one,)) for one in PROTOCOLS.values())
"""The counters of messages that clients have published."""


MESSAGE_COUNTERS: Final = {
    "global_messages_received": "publish",
    "global_messages_delivered_consume_manual_ack": "deliver",
    "global_messages_delivered_consume_auto_ack": "deliver_no_ack",
    "global_messages_delivered_get_manual_ack": "get",
    "global_messages_delivered_get_auto_ack": "get_no_ack",
    "global_messages_get_empty": "get_empty",
    "global_messages_redelivered": "redeliver",
    "global_messages_acknowledged": "ack",
    "global_messages_confirmed": "confirm",
    "global_messages_unroutable_returned": "return_unroutable",
    "global_messages_unroutable_dropped": "drop_unroutable",
}
"""Counters with RabbitMQ's keys of `message_stats` (`message_stats.CHANNEL_COUNTED`)."""


CHURN: Final = {
    "connection_created": "connections_opened",
    "connection_closed": "connections_closed",
    "channel_created": "channels_opened",
    "channel_closed": "channels_closed",
    "queue_declared": "queues_declared",
    "queue_created": "queues_created",
    "queue_deleted": "queues_deleted",
}
"""RabbitMQ's keys of `churn_rates`, and the counters of the nodes."""


LOGINS: Final = ("auth_attempts", "auth_attempts_failed", "auth_attempts_succeeded")
"""RabbitMQ's keys of `/auth/attempts`, and the counters of the nodes."""


def by_protocol(name: str, protocol: str) -> str:
    """Return the name of a counter of LOGINS of one protocol, among sums."""
    return f"{name}.{protocol}"


class Counters:
    """The counters of a node; changed by the loop's thread only, for whole runs of messages.

    values  by name and labels; `PublishCounts` adds to those of publishers
    sizes   of messages from publishers, by protocol: how many bodies are of at most each of SIZES,
            and above the one before; larger ones; the bytes of all
    """

    __slots__ = ("sizes", "values")

    def __init__(self) -> None:
        self.values: dict[tuple[str, Labels], int] = {
            (name, labels): 0 for name, family in FAMILIES.items() for labels in family.values
        }

        self.sizes = {protocol: [0] * (len(SIZES) + 2) for protocol in PROTOCOLS.values()}

    def add(self, name: str, count: int, *labels: str) -> None:
        """Add to a counter of FAMILIES."""
        self.values[name, labels] = self.values.get((name, labels), 0) + count

    def read(self) -> dict[tuple[str, Labels], int]:
        """Return all counters as they are now."""
        return dict(self.values)

    def logged_in(self, protocol: str, right: bool) -> None:
        """Count a login, which was right or is refused."""
        self.add("auth_attempts", 1, protocol)
        self.add(f"auth_attempts_{'succeeded' if right else 'failed'}", 1, protocol)

    # ------------------------------------------------------------ dead letters

    def died(self, reason: str, kind: Kind, strategy: Strategy, count: int) -> None:
        """Count messages that died in a queue that is led here.

        reason    of queue.effects.DeathReason
        strategy  disabled: without a dead letter exchange, or that one does not exist
        """
        self.add(f"global_messages_dead_lettered_{reason}", count, QUEUE_TYPES[kind], strategy)

    def letters_confirmed(self, count: int) -> None:
        """Count dead letters kept by their queue that every target has confirmed."""
        self.add("global_messages_dead_lettered_confirmed", count, *_KEPT_LETTERS)

    # ------------------------------------------------------------ messages of clients

    def delivered(self, protocol: str, kind: Kind, how: str, count: int, again: bool) -> None:
        """Count messages for a client; how: "consume" or "get", "_manual_ack" or "_auto_ack"."""
        values, labels = self.values, (protocol, QUEUE_TYPES[kind])
        values["global_messages_delivered", labels] += count
        values[f"global_messages_delivered_{how}", labels] += count
        if again:
            values["global_messages_redelivered", labels] += count
