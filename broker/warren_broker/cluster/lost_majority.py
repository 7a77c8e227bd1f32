"""What is said of a group that does not answer: which of its members are out of reach."""

from __future__ import annotations

import time
from collections.abc import Sequence

from warren_broker.cluster.cluster import Cluster
from warren_raft.core.quorum import majority


def lost_majority(cluster: Cluster, members: Sequence[str]) -> str:
    """Return which members this node does not reach, since when, and what to do.

    members  names of nodes
    """
    if not members:  # of a cluster that this node has not joined
        return "most nodes of the cluster are out of reach; start them, or try again"
    clock = cluster.loop.clock
    epoch_ms = clock.epoch_ms() - clock.monotonic_ms()
    away = [
        f"{node} since {_time((epoch_ms + since_ms) / 1000)}"
        for node in members
        if (since_ms := cluster.host.silent_since_ms(node)) is not None
    ]
    if not away:
        return (
            f"its members {', '.join(members)} are within this node's reach, and have no leader "
            "that it knows; try again"
        )
    said = f"{len(away)} of {len(members)} members are unreachable ({', '.join(away)})"
    if len(members) - len(away) < majority(len(members)):
        return f"it has lost its majority: {said}; start them, or try again"
    return f"{said}, and the others have no leader that this node knows; try again"


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
