"""Stores: the queues in which exchanges of some types keep messages.

A store is a replicated queue like any other, so that what it keeps has a majority's disks behind
it and survives whatever a queue survives. It comes and goes with its exchange. Clients cannot use
it: they get its messages through the exchange.
"""

from __future__ import annotations

from typing import Final

import msgspec

from warren_machines.metadata.changes import QueueChanged
from warren_machines.metadata.exchange_types import (
    DELAYED_MESSAGE,
    KEEPING_KINDS,
    RECENT_HISTORY,
    history_length,
)
from warren_machines.metadata.metadata_context import MetadataContext, placed
from warren_machines.metadata.records import Exchange, QueueRecord
from warren_machines.metadata.state import Scope
from warren_wire import errors
from warren_wire.arguments import NAME_BYTES_MAX
from warren_wire.queue_values.config import QueueConfig

PREFIXES: Final = {RECENT_HISTORY: "amq.history.", DELAYED_MESSAGE: "amq.delayed."}
"""The name of a store is its exchange's after the prefix of the exchange's type."""
ROUTER_AWAY_MS: Final = 10_000
"""How long a suspected node keeps the due messages that it was to route."""
REFUSED_RETRY_MS_MIN: Final = 5_000
REFUSED_RETRY_MS_MAX: Final = 60_000


def store_name(exchange: Exchange) -> str:
    """Return the name of an exchange's store; "": it has none."""
    prefix = PREFIXES.get(exchange.kind)
    return "" if prefix is None else prefix + exchange.name


def store_config(exchange: Exchange) -> QueueConfig:
    """Return the settings of an exchange's store.

    It has no priorities: messages of one block keep their order. A delayed message stays until the
    node that routes what is due has confirms for it (`cluster.client.due_messages`): one consumer,
    on the node of the leader. One that a queue has refused is tried again after a while.
    """
    kept = QueueConfig(
        exchange.vhost,
        store_name(exchange),
        delivery_limit=-1,
        priority_max=0,
        priority_default=0,
    )
    if exchange.kind == RECENT_HISTORY:
        return msgspec.structs.replace(kept, max_length=history_length(exchange.arguments))
    return msgspec.structs.replace(
        kept,
        single_active_consumer=True,
        consumer_disconnected_timeout_ms=ROUTER_AWAY_MS,
        delayed_retry_type="failed",
        delayed_retry_min_ms=REFUSED_RETRY_MS_MIN,
        delayed_retry_max_ms=REFUSED_RETRY_MS_MAX,
    )


def check_store(exchange: Exchange) -> None:
    """Raise PreconditionFailed for an exchange with a name too long for a store."""
    name = store_name(exchange)
    if len(name.encode()) > NAME_BYTES_MAX:
        spare = NAME_BYTES_MAX - len(name.encode()) + len(exchange.name.encode())
        raise errors.PreconditionFailed(
            f"the name of an exchange of type {exchange.kind} has at most {spare} bytes: choose a "
            "shorter one"
        )


def open_store(
    context: MetadataContext, exchange: Exchange, nodes: tuple[str, ...], leader: str
) -> None:
    """Create the store of an exchange, unless there is one; raises Unavailable without a node.

    1. A store has its only member on a node.  2. The node is forgotten, the store is deleted.
    3. The exchange is declared again: it gets another store.
    """
    name = store_name(exchange)
    if not name or name in context.scope(exchange.vhost).queues:
        return
    nodes, leader = placed(context, name, exchange.vhost, nodes, leader)
    state = context.state
    state.last_group += 1
    queue = QueueRecord(
        vhost=exchange.vhost,
        name=name,
        group=state.last_group,
        config=store_config(exchange),
        arguments={},
        nodes=nodes,
        leader=leader,
        store_of=exchange.name,
    )
    state.add_queue(queue)
    context.changes.append(QueueChanged(queue))


def close_store(context: MetadataContext, scope: Scope, exchange: Exchange) -> None:
    """Delete the store of an exchange that is being deleted."""
    if exchange.kind not in KEEPING_KINDS:
        return
    queue = scope.queues.get(store_name(exchange))
    if queue is not None and queue.store_of == exchange.name:
        context.state.drop_queue(queue)
        context.changes.append(QueueChanged(queue))
