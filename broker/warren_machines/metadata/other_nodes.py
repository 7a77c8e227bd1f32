"""The definitions of one cluster as those of another: the same objects, on other nodes.

Not a command: it happens where no node runs, on the state of a snapshot or of a log. The nodes
that are not among the new ones have left for good, and so has every process there was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.node_registry import end_life, unregister
from warren_machines.metadata.queues import remove_queues
from warren_machines.metadata.records import ClusterNode, QueueRecord
from warren_machines.metadata.state import MetadataState
from warren_raft.machine import Meta
from warren_raft.versions import Versions


def move_to(
    state: MetadataState,
    meta: Meta,
    nodes: Iterable[ClusterNode],
    members: Callable[[QueueRecord], Sequence[str]],
) -> tuple[QueueRecord, ...]:
    """Give the definitions those nodes instead of the ones that they have.

    As when a node is forgotten: the disks of the earlier nodes are refused if they come back, and
    exclusive and transient queues end with the processes that they belong to.

    meta     of the place in the log that this takes
    members  the nodes with a queue's log, its first leader first; empty: no node has it
    returns  the queues that are deleted because no node has them
    """
    context = MetadataContext(meta, state, 0, "")
    only = Versions(state.version, state.version)  # until its program says more at its start
    now = {one.name: msgspec.structs.replace(one, versions=only) for one in nodes}
    for known in list(state.nodes.values()):
        if known.name not in now or now[known.name].disk != known.disk:
            unregister(state, known)
    state.nodes = {name: now[name] for name in sorted(now)}
    for name in sorted(state.lives):
        end_life(context, name)
    lost = []
    for queue in list(state.queues()):
        wanted = members(queue)
        if not wanted:
            lost.append(queue)
            continue
        kept = tuple(sorted(wanted)) if queue.replicated else (wanted[0],)
        moved = msgspec.structs.replace(
            queue, nodes=kept, leader=wanted[0], founders=None, leaving=()
        )
        state.replace_queue(moved)
    remove_queues(context, lost)
    state.check()
    return tuple(lost)
