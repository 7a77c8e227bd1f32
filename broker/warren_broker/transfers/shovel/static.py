"""The shovels of the nodes' configurations: which of them this node runs.

A static shovel is one by its name in the whole cluster, and runs on one of the nodes that have it.
Each node with static shovels asks the others for theirs. Where two definitions of a name differ,
that of the node that runs it counts, and both nodes say so in their logs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from warren_machines.metadata.records import Parameter
from warren_wire.checksum import crc32
from warren_wire.parameter_values import SHOVEL


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


class StaticShovels:
    """Those of this node, and the names that others have.

    own      name -> definition, as a parameter of no vhost
    digests  name -> digest of the definition: what other nodes are told
    known    whether the others have been asked; before, nothing runs
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.own = {
            name: Parameter("", SHOVEL, name, value, user="") for name, value in values.items()
        }
        self.digests = {name: _digest(value) for name, value in values.items()}
        self.known = False
        self._elsewhere: dict[str, Mapping[str, str]] = {}

    def told(self, node: str, digests: Mapping[str, str]) -> list[str]:
        """Take note of another node's; return the names that it defines otherwise now."""
        before = self._elsewhere.get(node, {})
        self._elsewhere[node] = digests
        return [
            name
            for name, digest in sorted(digests.items())
            if name in self.digests and digest not in (self.digests[name], before.get(name))
        ]

    def owner(self, name: str, own: str, nodes: Iterable[str]) -> str | None:
        """Return which of these nodes runs one; None: none of them has it."""
        having = [
            node
            for node in nodes
            if (name in self.own if node == own else name in self._elsewhere.get(node, {}))
        ]
        return shovel_owner("", name, having)


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
