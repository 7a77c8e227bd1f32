"""Joining the cluster, and the addresses of its nodes.

A starting node sends `Join` to every reachable node until it knows the definitions. The leader of
the metadata group registers it, directly or through another node. Every node then connects to it,
even if its configuration does not name it, and the leader adds it to the group.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.definitions import Definitions, Load
from warren_broker.config import parse_address
from warren_machines.metadata import commands
from warren_machines.metadata.codec import encode_submission
from warren_raft.errors import NotLeader
from warren_raft.runtime.host import UnknownGroup
from warren_raft.runtime.net.handshake import Hello, NodeRemoved
from warren_raft.types import METADATA_GROUP

log = logging.getLogger(__name__)
JOIN_INTERVAL_MS = 500
"""Interval in which a node that does not know the definitions asks again."""


class Joining:
    """This node's part in joining: its own, and that of other nodes.

    Invariants: `_told` holds the addresses last given to the host; `_configured` the nodes with an
    address in this node's configuration, which takes precedence: it may lead through a proxy, or
    another network, and a node that has moved reports its address when it connects.
    """

    def __init__(self, cluster: Cluster, definitions: Definitions, peers: dict[str, str]) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._told = dict(peers)
        self._configured = dict.fromkeys(peers)
        self._address = ""
        cluster.handlers[messages.Join] = self._on_join
        definitions.on_nodes.append(self._nodes_changed)

    def start(self, address: str, load: Load | None, ports: tuple[int, ...]) -> None:
        """Start; the host has been started.

        address  where peers reach this node; "": the address from which it connects
        load, ports  see `Definitions.start`
        """
        self._address = address
        host = self._cluster.host
        others = tuple(sorted(name for name in self._told if name != host.node_id))
        self._definitions.start((*others, host.node_id), address, load, ports)
        self._cluster.loop.call_later(JOIN_INTERVAL_MS, self._ask)

    # ------------------------------------------------------------ joining

    def _ask(self) -> None:
        if self._definitions.ready:
            return
        host = self._cluster.host
        question = messages.encode(
            messages.Join(host.node_id, host.disk, self._address, versions=host.versions)
        )
        for node in self._cluster.peers():
            host.send(node, list(question))
        self._cluster.loop.call_later(JOIN_INTERVAL_MS, self._ask)

    def _on_join(self, node: str, message: messages.Join, rest: memoryview) -> None:
        host = self._cluster.host
        known = self._definitions.state.nodes.get(message.node)
        if known is not None and (known.disk, known.address) == (message.disk, message.address):
            return
        if host.is_leader(METADATA_GROUP):
            where = message.disk, message.address, message.versions
            command = commands.JoinNode(message.node, *where)
            data = encode_submission(0, host.node_id, 0, (command,), host.version)
            try:
                host.propose(METADATA_GROUP, data)
            except (NotLeader, UnknownGroup):
                return  # it asks again
            log.info("node %s at %s joins the cluster", message.node, message.address or "?")
        elif not message.passed_on:
            leader = self._cluster.leader_of(METADATA_GROUP)
            if leader is not None and leader != message.node:
                host.send(leader, messages.encode(replace(message, passed_on=True)))

    # ------------------------------------------------------------ addresses

    def _nodes_changed(self, name: str) -> None:
        """Connect to nodes at their present addresses; disconnect those that have left."""
        state, host = self._definitions.state, self._cluster.host
        client = self._cluster.client(METADATA_GROUP)
        if client is not None and state.nodes:
            client.members = self._definitions.nodes()
        for node in state.nodes.values():
            if node.name == host.node_id or node.name in self._configured:
                continue
            if not node.address or node.address == self._told.get(node.name):
                continue
            self._told[node.name] = node.address
            host.add_peer(node.name, parse_address(node.address))
        for gone in sorted(set(state.removed.values()) - state.nodes.keys()):
            if gone in self._told and gone != host.node_id:
                del self._told[gone]
                self._configured.pop(gone, None)
                host.remove_peer(gone)
                log.info("node %s has left the cluster", gone)

    def judge(self, hello: Hello) -> str | None:
        """Return why an authenticated node is refused as a peer; None: it is accepted.

        Raises NodeRemoved, see `Observer.judge_peer`.
        """
        state = self._definitions.state
        if hello.disk in state.removed:
            raise NodeRemoved(
                f"node {hello.node!r} was removed from the cluster with the data directory that it "
                "has; empty the directory to let it join as a new node, or take it out of service"
            )
        for one in state.nodes.values():
            if one.disk == hello.disk and one.name != hello.node:
                return (
                    f"node {hello.node!r} has the data directory of node {one.name!r}; give every "
                    "node one of its own"
                )
        known, host = state.nodes.get(hello.node), self._cluster.host
        if known is None or known.disk == hello.disk:
            return None
        # 1. A machine fails without closing its connections: the connection to it stays open,
        # silent, until TCP times out.  2. The node comes back elsewhere with an empty disk.  It is
        # not "running" twice.
        if not host.connected(known.name) or host.suspected(known.name):
            return None
        met = host.peer_hello(known.name)
        if met is None or met.disk == hello.disk:
            return None
        return (
            f"a node {hello.node!r} with another data directory is running at "
            f"{known.address or 'an address of its own'}; give this one a name of its own, or stop "
            "the other one first"
        )


def own_address(listen: tuple[str, int], configured: str | None) -> str:
    """Return where peers reach this node: as configured, else where it listens; "": unknown."""
    if configured is not None and parse_address(configured)[1]:
        return configured
    host, port = listen
    if host in ("", "0.0.0.0", "::"):
        return ""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
