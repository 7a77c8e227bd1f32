"""The items that the frame scanner returns for one feed, in the order they were received."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

ACK = 0
NACK_REQUEUE = 1
NACK_DISCARD = 2
REJECT_REQUEUE = 3
REJECT_DISCARD = 4

PERSISTENT = 1
"""delivery_mode is 2."""
HEADERS = 2
"""The headers property is present."""
CC = 4
"""A CC or BCC header is present: more routing keys than the route's."""
USER_ID = 8
"""The user_id property is present: to be compared with the connection's user."""
BAD_EXPIRATION = 16
"""The expiration property is not an integer from 0 to 4294967295: channel error 406."""
DIRECT_REPLY_TO = 32
"""reply_to starts with `amq.rabbitmq.reply-to`: to be replaced before it is routed."""

HAS_DEATHS = 64
"""A header x-death is present: to be told from a history of the broker's (`published_deaths`)."""

FRAME_ERROR = 501
SYNTAX_ERROR = 502
UNEXPECTED_FRAME = 505
NOT_IMPLEMENTED = 540
PRECONDITION_FAILED = 406
RESOURCE_ERROR = 506


class Unsendable(Exception):
    """A message of a block that cannot be sent to this client; nothing of the range was written.

    ordinal    its position in the block
    elsewhere  another client may be able to take it
    """

    def __init__(self, ordinal: int, reason: str, elsewhere: bool = False) -> None:
        super().__init__(ordinal, reason, elsewhere)
        self.ordinal = ordinal
        self.reason = reason
        self.elsewhere = elsewhere

    def __str__(self) -> str:
        return self.reason


class DeliveryMalformed(Exception):
    """Bytes from a broker that are no frames, or frames in an order that cannot be."""


class Route(NamedTuple):
    """Exchange, routing key and mandatory flag of a basic.publish; bytes as received."""

    exchange: bytes
    routing_key: bytes
    mandatory: bool


class PublishRun(msgspec.Struct, frozen=True, gc=False):
    """Messages first <= i < last of the scanner's table, published one after another on a channel.

    route  the id they share in the table's routes, or -1 when they have several
    flags  the flags of all of them or-ed; 0: no message needs special handling
    """

    channel: int
    first: int
    last: int
    route: int
    flags: int


class AckRun(msgspec.Struct, frozen=True, gc=False):
    """Consecutive basic.ack, nack and reject of a channel.

    ranges  (kind, first, last, multiple) in the order received; kind is ACK, NACK_REQUEUE,
            NACK_DISCARD, REJECT_REQUEUE or REJECT_DISCARD. Single settlements of successive tags
            are joined into one range first..last (closed). With multiple: everything
            outstanding up to `last`, and all that is outstanding when last is 0; first is 0.
    """

    channel: int
    ranges: tuple[tuple[int, int, int, bool], ...]


class MethodItem(msgspec.Struct, frozen=True, gc=False):
    """Any other method frame; args is what follows the method id."""

    channel: int
    class_id: int
    method_id: int
    args: bytes


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """A heartbeat frame."""


class ContentRefused(msgspec.Struct, frozen=True, gc=False):
    """A channel error detected while a basic.publish arrived.

    The scanner drops what follows on that channel, methods excepted, until it sees
    channel.close or channel.close-ok on it.
    """

    channel: int
    code: int
    text: str
    class_id: int = 60
    method_id: int = 40


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """A connection error; always the last item: the scanner accepts nothing more.

    class_id, method_id   of the method being received, or 0
    """

    channel: int
    code: int
    text: str
    class_id: int = 0
    method_id: int = 0


Item: TypeAlias = PublishRun | AckRun | MethodItem | Heartbeat | ContentRefused | Malformed

NO_METHOD = "expected method frame, got non method frame instead"
NO_HEADER = "expected content header for class 60, got non content header frame instead"
NO_BODY = "expected content body, got non content body frame instead"


def size_error(size: int, limit: int) -> str:
    """Return the text for a message above the size limit; RabbitMQ's."""
    return f"message size {size} is larger than configured max size {limit}"


def unfinished_error(size: int, limit: int) -> str:
    """Return the text for a connection with more bytes of incomplete messages than allowed."""
    return (
        f"{size} bytes of messages that are not complete; a connection may have {limit} "
        "(limits.unfinished_bytes_max): finish some before you begin others"
    )


def frame_error(kind: int, head: bytes, why: str) -> str:
    """Return the text for an invalid frame; as RabbitMQ's, it shows the head of the payload."""
    octets = ",".join([str(octet) for octet in head])
    return f"type {kind}, first 16 octets = <<{octets}>>: {{{why}}}"
