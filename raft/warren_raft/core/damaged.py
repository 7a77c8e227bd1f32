"""A member of which a part of the log was unreadable when it started.

The stamp of the last entry and the CONFIGs above the snapshot are needed from the start. Where
their bytes are damaged, another member is asked for the entry, as for any other. Until it arrives
the member follows, votes and appends, but does not campaign:

1. The last entry was stamped by a clock that is ahead; its stamp is unknown here.  2. This member
leads, and stamps with its own clock: the log's time goes backwards.

1. 9 makes d a voter beside a, b, c; a, b, d commit it, and it is damaged on a.  2. 10 makes e a
voter; b, d, e commit it.  3. By what a can read, a and c are a majority: they elect a, which lacks
10.
"""

from __future__ import annotations

from warren_raft.core import membership_change
from warren_raft.core.state import NodeState
from warren_raft.core.transitions import set_election


def look_again(node: NodeState) -> None:
    """Read what has been repaired since; the store requests what is still missing."""
    node.log.date()
    if node.configs.missing:
        node.configs.fill(node.log.store.configs())
        membership_change.adopt(node)
    node.unread = node.lacks_beginning()
    waits = node.leader is not None or node.election_at_ms is not None
    if not node.unread and not waits and node.asks:
        # It may have stopped campaigning because too few of the members known to it were reachable.
        node.attempts = 0
        set_election(node, node.rng.randrange(*node.config.election_timeout_ms))
