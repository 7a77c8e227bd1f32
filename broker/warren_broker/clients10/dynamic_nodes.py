"""Queues that an attach asks the broker to make, and that end with their link.

As in RabbitMQ 4.3 the terminus is dynamic, has no address, and names one of two capabilities:

rabbitmq:volatile-queue  (a source) replies, sent at most once to the one consumer that has credit
temporary-queue          (a source or target) a classic queue, exclusive to the connection
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias
from urllib.parse import quote

from warren_broker.clients10.link import LinkPart, symbols
from warren_broker.clients10.link_requests import (
    DeclareTemporary,
    DeleteTemporary,
    TemporaryDeclared,
)
from warren_wire.amqp10.proton import UNDESCRIBED, Array, Data, Described, Link, Terminus, symbol
from warren_wire.errors import NotImplementedHere, continued

VOLATILE_QUEUE: Final = "rabbitmq:volatile-queue"
TEMPORARY_QUEUE: Final = "temporary-queue"
DynamicNode: TypeAlias = Literal["rabbitmq:volatile-queue", "temporary-queue"]
_PROPERTIES: Final = {
    symbol("lifetime-policy"): Described(symbol("amqp:delete-on-close:list"), []),
    symbol("supported-dist-modes"): Array(UNDESCRIBED, Data.SYMBOL, symbol("move")),
}


def dynamic_source(link: Link) -> DynamicNode | None:
    """Return what an attach's source asks for; None: it is not dynamic; raises Refusal."""
    source = link.remote_source
    if not source.dynamic:
        return None
    named = symbols(source.capabilities)
    if source.address is None and VOLATILE_QUEUE in named:
        if (
            source.durability == Terminus.NONDURABLE
            and source.expiry_policy == Terminus.EXPIRE_WITH_LINK
            and source.timeout == 0
            and link.remote_snd_settle_mode == Link.SND_SETTLED
        ):
            return VOLATILE_QUEUE
        raise NotImplementedHere(
            f"Dynamic source not supported: {VOLATILE_QUEUE} needs durable=none, "
            "expiry-policy=link-detach, timeout=0 and snd-settle-mode=settled"
        )
    return _temporary("source", source, named)


def dynamic_target(link: Link) -> DynamicNode | None:
    """Return what an attach's target asks for; None: it is not dynamic; raises Refusal."""
    target = link.remote_target
    return _temporary("target", target, symbols(target.capabilities)) if target.dynamic else None


def _temporary(what: str, terminus: Terminus, named: list[str]) -> DynamicNode:
    if terminus.address is None and TEMPORARY_QUEUE in named:
        return TEMPORARY_QUEUE
    also = f" or {VOLATILE_QUEUE}" if what == "source" else ""
    raise NotImplementedHere(
        f"Dynamic {what} not supported: give no address, and the capability {TEMPORARY_QUEUE}{also}"
    )


def queue_address(queue: str) -> str:
    """Return the v2 address of a queue."""
    return f"/queues/{quote(queue, safe='')}"


def describe(terminus: Terminus, queue: str, node: DynamicNode) -> None:
    """Write the node that was made into the answer of an attach."""
    terminus.address = queue_address(queue)
    terminus.dynamic = True
    terminus.durability = Terminus.NONDURABLE
    terminus.expiry_policy = Terminus.EXPIRE_WITH_LINK
    terminus.timeout = 0
    terminus.properties.clear()
    terminus.properties.put_object(_PROPERTIES)
    terminus.capabilities.clear()
    terminus.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, symbol(node)))


class TemporaryQueue:
    """The exclusive queue of one link.

    name  "": it is not declared yet, or deleted
    """

    def __init__(self, part: LinkPart, container: str, declared: Callable[[str], None]) -> None:
        self.name = ""
        self._part = part
        self._declared = declared
        answered = continued(part.refuse_opening, self._answered)
        part.host.ask(DeclareTemporary(container, part.link.name), answered)

    def _answered(self, answer: TemporaryDeclared) -> None:
        self.name = answer.queue
        if self._part.ended:
            self.delete()
        else:
            self._declared(answer.queue)

    def delete(self) -> None:
        """Delete the queue: its link has ended."""
        name, self.name = self.name, ""
        if name:
            self._part.host.tell(DeleteTemporary(name))
