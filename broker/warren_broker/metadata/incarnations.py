"""A node's lives: each begins with a start of its process, one at a time."""

from __future__ import annotations

from warren_broker.metadata.apply_context import MetadataContext
from warren_broker.metadata.changes import NodeRenewed
from warren_broker.metadata.queues import remove_queues
from warren_broker.metadata.records import QueueRecord
from warren_broker.metadata.state import RETIRED_KEPT_MAX, MetadataState, UplinkState
from warren_broker.queue.commands import Incarnation, UplinkId
from warren_raft.types import Index


def begin_life(context: MetadataContext, node: str, uplink: UplinkId) -> list[QueueRecord]:
    """Make `uplink` the node's life; remove what was bound to older ones.

    1. A node dies with an exclusive queue in it.
    2. It starts again; its first submission comes.
    3. The old life's connections can never come back, so their queues go, wherever they lie. So do
       transient queues that lay on it: their messages were in its memory.
    """
    state = context.state
    previous = state.lives.get(node, 0)
    if previous == uplink or is_retired(state, node, uplink):
        return []
    _retire(state, node, previous)
    state.numbers.pop(node, None)
    state.lives[node] = uplink
    state.uplinks[uplink] = UplinkState(node)
    context.changes.append(NodeRenewed(node, uplink, previous))
    return list(remove_queues(context, _bound(state, node, previous)).queues)


def end_life(context: MetadataContext, node: str) -> list[QueueRecord]:
    """The node will never come back: as `begin_life`, without a new one."""
    previous = context.state.lives.pop(node, 0)
    context.state.numbers.pop(node, None)
    _retire(context.state, node, previous)
    if previous:
        context.changes.append(NodeRenewed(node, 0, previous))
    return list(remove_queues(context, _bound(context.state, node, previous)).queues)


def _retire(state: MetadataState, node: str, previous: UplinkId) -> None:
    if previous:
        state.retired[node] = (*state.retired.get(node, ()), previous)[-RETIRED_KEPT_MAX:]
        del state.uplinks[previous]


def _bound(state: MetadataState, node: str, previous: UplinkId) -> list[QueueRecord]:
    return [
        queue
        for queue in state.queues()
        if (previous and queue.owner_uplink == previous)
        or (not queue.config.durable and queue.nodes[0] == node)
    ]


def number_life(context: MetadataContext, node: str, uplink: UplinkId) -> None:
    """Give the node's life its number, once.

    The index of the entry that began it: the same on every member, and higher than that of every
    life before, also of a node that was forgotten and comes back under its name.
    """
    state = context.state
    if state.lives.get(node) == uplink and node not in state.numbers:
        state.numbers[node] = context.meta.index


def is_retired(state: MetadataState, node: str, uplink: UplinkId) -> bool:
    """Whether that life of the node is among the latest of it that are over.

    Decides on a life's first submission here, which has no number yet; beyond RETIRED_KEPT_MAX
    restarts a late one ends the node's present process, which says so: it is not done in silence.
    """
    return uplink in state.retired.get(node, ())


def is_over(
    state: MetadataState, applied: Index, node: str, uplink: UplinkId, number: Incarnation
) -> bool:
    """Whether that life of the node is over, however many have come after it.

    applied  the log index that the state is as of
    number   the life's; one above `applied` begins after what this state knows
    """
    if state.lives.get(node) == uplink:
        return False
    if not number:
        return is_retired(state, node, uplink) or node in state.numbers
    return number <= applied
