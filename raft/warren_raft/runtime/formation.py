"""How the nodes of a new cluster find out that it is new."""

from __future__ import annotations

from dataclasses import dataclass

from warren_raft.types import NodeId


@dataclass(frozen=True, slots=True)
class Formation:
    """How this node begins with group 0: `start_group(GroupSpec(0, voters, joining=joining))`.

    joining  the cluster exists: this node's member of group 0 begins empty and votes for nobody
             until the leader has added it. False: it is one of the founders, or has group 0 on disk
    voters   the founders, this node among them; when joining: nodes that are known to be in it
    stored   group 0 is on this node's disk
    """

    joining: bool
    voters: tuple[NodeId, ...]
    stored: bool = False
