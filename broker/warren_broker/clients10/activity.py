"""Whether a link's consumer is the active one of its queue, as its client is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from warren_broker.clients10.link import LinkHost
from warren_wire.amqp10.deliveries import Outbox
from warren_wire.amqp10.link_flows import LinkAddress
from warren_wire.amqp10.proton import Link

ACTIVE: Final = "rabbitmq:active"


class Activity:
    """Tells a client by flows with the property `rabbitmq:active`.

    A consumer that becomes the single active one is told so at once; otherwise the first flow
    follows the client's first credit. Another one follows each change. Consumers of queues without
    a single active one are always active.

    credited  the client has given credit
    """

    def __init__(self, link: Link, host: LinkHost) -> None:
        self.credited = False
        self._link = link
        self._host = host
        self._address: LinkAddress | None = None
        self._active: bool | None = None  # None: not known, or not to be told
        self._told: bool | None = None
        self._at_once = False

    def attach(self, accept: Callable[[], None]) -> None:
        """Have the attach answered, and note where flows go."""
        self._address = self._host.flows.attach(accept)

    def change(self, active: bool | None, *, single: bool = False) -> None:
        """Note the state; single: the queue has a single active consumer, and says which."""
        self._active = active
        self._at_once |= single and active is True

    @property
    def due(self) -> bool:
        """Whether the client is to be told."""
        return (self.credited or self._at_once) and self._active not in (None, self._told)

    @property
    def ends(self) -> bool:
        """Whether the consumer is not active any more: what was sent before comes before that."""
        return not self._active

    def tell(self, outbox: Outbox) -> None:
        """Tell the client, on a link on which nothing waits for the session's window."""
        self._told = self._active
        if self._address is not None:
            count, credit = outbox.delivery_count, max(0, outbox.credit)
            properties = {ACTIVE: bool(self._active)}
            self._host.flows.tell(self._link, self._address, count, credit, properties)
