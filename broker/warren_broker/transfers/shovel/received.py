"""A message as a shovel's source delivers it, and as its destination takes it.

Between protocols a message is converted by the code with which a node converts it for a consumer of
the other protocol (docs/reference/compatibility.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from warren_broker.transfers.shovel.sections import annotation, first_acquirer
from warren_wire.amqp10.message.sent import encode_message
from warren_wire.block.layout import FORM_AMQP091
from warren_wire.kernel import read_sections
from warren_wire.kernel.section_types import MalformedSections
from warren_wire.sessions.pika_properties import MessageProperties

EXCHANGE: Final = "x-exchange"
ROUTING_KEY: Final = "x-routing-key"
"""Annotations with which RabbitMQ and Warren say where a message was published to."""
OVERRUN_BYTES: Final = 64 << 20
"""Of messages that a source may send beyond what it was allowed, until it keeps to that again."""
KEPT_BYTES: Final = 512
"""What a message that is held counts besides its own bytes: small ones are held, too."""


@dataclass(slots=True)
class Received091:
    """A delivery over AMQP 0.9.1.

    exchange, routing_key  None: it does not say to which it was published
    origin, number  its name, of a relay (`relay_names`); 0: it has none
    """

    tag: int
    exchange: str | None
    routing_key: str | None
    redelivered: bool
    properties: MessageProperties
    body: bytes
    origin: int = 0
    number: int = 0

    def as_091(self) -> Received091:
        """Return it as it is; raises MalformedSections."""
        self._check()
        return self

    def _check(self) -> None:
        if self.properties.flaw:
            raise MalformedSections(self.properties.flaw)

    def as_10(self) -> Received10:
        """Return it converted, with its exchange and routing key as annotations.

        Raises MalformedSections.
        """
        self._check()
        parts = encode_message(
            FORM_AMQP091,
            b"".join(self.properties.encode()),
            self.body,
            exchange=(self.exchange or "").encode(),
            routing_key=(self.routing_key or "").encode(),
        )
        return Received10(self.tag, b"".join(parts), self.origin, self.number)


@dataclass(slots=True)
class Received10:
    """A delivery over AMQP 1.0; data: its sections as they came.

    origin, number  its name, of a relay (`relay_names`); 0: it has none
    """

    tag: int
    data: bytes
    origin: int = 0
    number: int = 0

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before."""
        return not first_acquirer(self.data)

    def as_10(self) -> Received10:
        """Return it as it is."""
        return self

    def as_091(self) -> Received091:
        """Return it converted; raises MalformedSections."""
        view = memoryview(self.data)
        read = read_sections(view)
        properties = MessageProperties().decode(read.properties)
        return Received091(
            self.tag,
            annotation(self.data, EXCHANGE),
            annotation(self.data, ROUTING_KEY),
            False,
            properties,
            b"".join(view[start:end] for start, end in read.pieces),
            self.origin,
            self.number,
        ).as_091()


Received: TypeAlias = Received091 | Received10


class Overrun:
    """Bytes that have come too many, one after the other. Ended at once, a source that exceeds its
    limit now and then, as RabbitMQ 3.10 does, would count a failed delivery of each message."""

    def __init__(self) -> None:
        self._bytes = 0

    def counted(self, size: int, beyond: bool) -> int:
        """Count a message; return how many bytes have come too many, 0 as long as that may be.

        beyond  whether it came although it should not
        """
        self._bytes = self._bytes + size + KEPT_BYTES if beyond else 0
        return self._bytes if self._bytes > OVERRUN_BYTES else 0
