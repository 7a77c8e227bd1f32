"""What a member could not read of its log when it began.

The stamp of the last entry and the CONFIGs above the snapshot are needed from the beginning. Where
their bytes are damaged another member is asked for the entry, like for any other. Until it is here
the member follows, votes, and keeps what it is sent, but does not stand for election:

1. The last entry was stamped by a clock that is ahead; its stamp is unknown here.  2. This member
leads, and stamps with its own clock: the log's time falls.

1. 9 makes d a voter beside a, b, c; a, b, d commit it, and it is damaged on a.  2. 10 makes e one;
b, d, e commit it.  3. By what a can read, a and c are a majority: they elect a, which lacks 10.
"""

from __future__ import annotations

from warren_raft.core import membership_change
from warren_raft.core.state import NodeState
from warren_raft.core.transitions import set_election


def look_again(node: NodeState) -> None:
    """Read what has come since; whatever has not is asked for by the store."""
    node.log.date()
    if node.configs.missing:
        node.configs.fill(node.log.store.configs())
        membership_change.adopt(node)
    node.unread = node.lacks_beginning()
    waits = node.leader is not None or node.election_at_ms is not None
    if not node.unread and not waits and node.asks:
        # It may have given up because too few of the members that it knew of were heard.
        node.attempts = 0
        set_election(node, node.rng.randrange(*node.config.election_timeout_ms))
