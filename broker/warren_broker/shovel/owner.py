"""Which node runs a shovel."""

from __future__ import annotations

from collections.abc import Iterable

from warren_raft.checksum import crc32


def shovel_owner(vhost: str, name: str, nodes: Iterable[str]) -> str | None:
    """Return the node that runs a shovel, by rendezvous hashing; None without nodes.

    Every node decides by those nodes that it reaches. 1. Nodes A, B and C are connected but for A
    and B.  2. A chooses among A and C, B among B and C.  3. The node with the highest rank of all
    that run is a choice of itself, so the shovel runs, whatever the others see. Perhaps another
    node runs it, too: then two consumers share the source.
    """
    return max(nodes, key=lambda node: (_rank(vhost, name, node), node), default=None)


def _rank(vhost: str, name: str, node: str) -> int:
    return crc32("\0".join((node, vhost, name, node)).encode("utf-8", "replace"))
