"""What a member could not read of its log when it began.

The stamp of the last entry and the CONFIGs above the snapshot are needed from the beginning. Where
their bytes are damaged another member is asked for the entry, like for any other. Until it is here
the member follows, votes, and keeps what it is sent, but does not stand for election:

1. The last entry was stamped by a clock that is ahead; its stamp is unknown here.  2. This member
leads, and stamps with its own clock: the log's time falls.

1. 9 makes d a voter beside a, b, c; a, b, d commit it, and it rots on a.  2. 10 makes e one;
b, d, e commit it.  3. By what a can read, a and c are a majority: they elect a, who lacks 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren_raft.core import candidate

if TYPE_CHECKING:
    from warren_raft.core.node import Node


def is_left(node: Node) -> bool:
    """Something of that kind has not been read yet."""
    return not node.log.dated or bool(node.configs.missing)


def look_again(node: Node) -> None:
    """Read what has come since; whatever has not is asked for by the store."""
    node.log.date()
    if node.configs.missing:
        node.configs.fill(node.log.store.configs())
        node.adopt()
    node.unread = is_left(node)
    waits = node.leader is not None or node.election_at_ms is not None
    if not node.unread and not waits and node.asks:
        # It may have given up because too few of the members that it knew of were heard.
        node.attempts = 0
        candidate.set_election(node, node.rng.randrange(*node.config.election_timeout_ms))
