"""A node's lives: each begins with a start of its process, one at a time."""

from __future__ import annotations

from warren_broker.metadata.changes import NodeRenewed
from warren_broker.metadata.queues import remove_queues
from warren_broker.metadata.records import Queue
from warren_broker.metadata.state import RETIRED_KEPT_MAX, MetadataState, UplinkState
from warren_broker.metadata.turn import Turn
from warren_broker.queue.commands import UplinkId


def begin_life(turn: Turn, node: str, uplink: UplinkId) -> list[Queue]:
    """Make `uplink` the node's life; remove what was bound to older ones.

    1. A node dies with an exclusive queue in it.
    2. It starts again; its first submission comes.
    3. The old life's connections can never come back, so their queues go, wherever they lie. So do
       transient queues that lay on it: their messages were in its memory.
    """
    state = turn.state
    previous = state.lives.get(node, 0)
    if previous == uplink or is_retired(state, node, uplink):
        return []
    _retire(state, node, previous)
    state.lives[node] = uplink
    state.uplinks[uplink] = UplinkState(node)
    turn.changes.append(NodeRenewed(node, uplink, previous))
    return list(remove_queues(turn, _bound(state, node, previous)).queues)


def end_life(turn: Turn, node: str) -> list[Queue]:
    """The node will never come back: as `begin_life`, without a new one."""
    previous = turn.state.lives.pop(node, 0)
    _retire(turn.state, node, previous)
    if previous:
        turn.changes.append(NodeRenewed(node, 0, previous))
    return list(remove_queues(turn, _bound(turn.state, node, previous)).queues)


def _retire(state: MetadataState, node: str, previous: UplinkId) -> None:
    if previous:
        state.retired[node] = (*state.retired.get(node, ()), previous)[-RETIRED_KEPT_MAX:]
        del state.uplinks[previous]


def _bound(state: MetadataState, node: str, previous: UplinkId) -> list[Queue]:
    return [
        queue for queue in state.queues()
        if (previous and queue.owner_uplink == previous)
        or (not queue.config.durable and queue.nodes[0] == node)
    ]


def is_retired(state: MetadataState, node: str, uplink: UplinkId) -> bool:
    """Whether that life of the node is known to be over."""
    return uplink in state.retired.get(node, ())
