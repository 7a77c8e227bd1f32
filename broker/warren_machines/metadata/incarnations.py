"""The incarnations of nodes: each begins with a start of the process, one at a time."""

from __future__ import annotations

from warren_machines.metadata.changes import NodeRenewed
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.queues import remove_queues
from warren_machines.metadata.records import QueueRecord
from warren_machines.metadata.state import RETIRED_KEPT_MAX, MetadataState, UplinkState
from warren_machines.queue.commands import Incarnation, UplinkId
from warren_raft.types import Index


def begin_life(context: MetadataContext, node: str, uplink: UplinkId) -> list[QueueRecord]:
    """Make `uplink` the node's incarnation; remove what was bound to older ones.

    1. A node dies with an exclusive queue on it.
    2. It starts again; its first submission arrives.
    3. The connections of the old incarnation can never come back, so their queues are deleted,
       wherever their members are. So are transient queues on the node: their messages were in its
       memory.
    """
    state = context.state
    previous = state.lives.get(node, 0)
    if previous == uplink or is_retired(state, node, uplink):
        return []
    _retire(state, node, previous)
    state.lives[node] = uplink
    # The index of the entry that began it: equal on every member, and higher than that of every
    # earlier incarnation, also of a node that was forgotten and returns under its name.
    state.numbers[node] = context.meta.index
    state.uplinks[uplink] = UplinkState(node)
    context.changes.append(NodeRenewed(node, uplink, previous))
    return list(remove_queues(context, _bound(state, node, previous)).queues)


def end_life(context: MetadataContext, node: str) -> list[QueueRecord]:
    """End the node's incarnation without a new one: it will never come back."""
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


def is_retired(state: MetadataState, node: str, uplink: UplinkId) -> bool:
    """Return whether that incarnation is among the node's latest ones that have ended.

    This decides on an incarnation's first submission, which has no number yet. Beyond
    RETIRED_KEPT_MAX restarts a late submission ends the present incarnation instead; the node's
    process then stops with an error, not silently.
    """
    return uplink in state.retired.get(node, ())


def is_over(
    state: MetadataState, applied: Index, node: str, uplink: UplinkId, number: Incarnation
) -> bool:
    """Return whether that incarnation of the node has ended, however many came after it.

    applied  the log index of the state
    number   of the incarnation; one above `applied` began after this state. A process submits
             nothing to a queue before it knows its number
    """
    return state.lives.get(node) != uplink and number <= applied
