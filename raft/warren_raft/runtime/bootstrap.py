"""The formation of a new cluster.

A node whose disk is empty cannot know whether the cluster exists already: it may be new with the
others, it may be late, or it may have lost its disk. Were it to start as a founder in a cluster
that exists, it could vote in the place of the disk it lost. So it asks all the others first:

- one of them says that the cluster is formed: it joins
- one of them has founded the cluster with another disk of this node: it joins, as it lost that disk
- all are reachable, none is formed, and all list the same founders: it is a founder

`formed` is made durable once an entry of group 0 is known to be committed. Before that a majority
may hold such an entry, while the nodes remember only with which disks they founded:

1. a, b, c found. a leads, and b has its first entry: it is committed.  2. a loses its disk before
any node learns of the commit.  3. a restarts and reaches b and c, neither of them formed. As a
founder it could elect c, which has nothing. But b noted a's disk before it voted, and tells a so.
Replayed by tests/raft/runtime/test_bootstrap.py
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warren_raft.runtime.config import Address, HostConfig
from warren_raft.runtime.net.handshake import NONCE_BYTES, Hello
from warren_raft.storage.errors import WriteFailed
from warren_raft.storage.files import is_full
from warren_raft.storage.group_store import GroupStore
from warren_raft.storage.identity import Directory
from warren_raft.types import Entry, NodeId

log = logging.getLogger("warren.raft")

REMIND_MS = 30_000
"""How often the log repeats which nodes this node waits for."""


@dataclass(frozen=True, slots=True)
class BootstrapPlan:
    """How this node starts group 0: `start_group(GroupSpec(0, voters, joining=joining))`.

    joining  the cluster exists: this node's member of group 0 starts empty and does not vote
             until the leader has added it. False: it is one of the founders, or has group 0 on disk
    voters   the founders, this node among them; when joining: nodes known to be in the cluster
    stored   group 0 is on this node's disk
    """

    joining: bool
    voters: tuple[NodeId, ...]
    stored: bool = False


@dataclass(eq=False, repr=False)
class ClusterBootstrap:
    """The process by which a node founds or joins its cluster.

    Invariant: the founders' disks are recorded on this node's disk before group 0 starts on it

    hellos: a view of the peers' latest Hellos; stored: group 0 is on this node's disk.
    """

    config: HostConfig
    directory: Directory
    hellos: dict[NodeId, Hello]
    stored: Callable[[], bool]
    _callback: Callable[[BootstrapPlan], None] | None = None
    _asked: bool = False
    _missing: tuple[NodeId, ...] | None = None
    _said_ms: int = 0
    _leader_heard_ms: int | None = None

    # ------------------------------------------------------------ for the handshake

    def greeting(self, to: NodeId, boot_id: int, address: Address) -> Hello:
        """Return the Hello of this node to that one."""
        own = self.directory.identity
        return Hello(
            self.config.versions,
            own.cluster,
            own.node,
            boot_id,
            os.urandom(NONCE_BYTES),
            int(own.disk, 16),
            own.formed,
            address,
            self.founders,
            int(own.cluster_id or "0", 16),
            self.known_as(to),
            version=own.version,
        )

    @property
    def founders(self) -> tuple[NodeId, ...]:
        """The nodes that are to form the cluster with this one; empty when it is formed."""
        identity = self.directory.identity
        if identity.formed:
            return ()
        if identity.founders and self.stored():
            return tuple(sorted(identity.founders))
        return tuple(sorted({self.config.node, *self.config.peers}))

    def known_as(self, node: NodeId) -> int:
        """Return the disk with which that node was a founder when this one was; 0: it was not."""
        disk = self.directory.identity.founders.get(node)
        return int(disk, 16) if disk and self.stored() else 0

    def judge(self, hello: Hello) -> str | None:
        """Return why that node cannot be in one cluster with this one; None: it can."""
        own = self.directory.identity
        theirs = f"{hello.cluster_id:016x}" if hello.cluster_id else ""
        if theirs and own.cluster_id and theirs != own.cluster_id:
            return (
                f"node {hello.node!r} and node {own.node!r} are of two clusters that are both "
                f"named {own.cluster!r} (each was formed by itself: {theirs}, {own.cluster_id}); "
                "correct the peers' addresses, or let one of the two join the other's cluster "
                "with an empty directory"
            )
        if own.formed or hello.formed or not self._asked or self.founders == hello.founders:
            return None
        return (
            f"node {own.node!r} is to form the cluster of nodes {', '.join(self.founders)}, node "
            f"{hello.node!r} that of {', '.join(hello.founders)}; give both the same peers"
        )

    # ------------------------------------------------------------ the decision

    def begin(self, callback: Callable[[BootstrapPlan], None], now_ms: int) -> None:
        """Call back when it is decided how to start group 0."""
        assert not self._asked, "begin is called once"
        self._asked = True
        identity = self.directory.identity
        self._callback = callback
        if self.stored():
            self._decide(
                BootstrapPlan(False, tuple(sorted({identity.node, *identity.founders})), True)
            )
        elif identity.formed:
            log.warning(
                "%s: this directory belongs to a cluster that is formed, but the cluster's "
                "definitions are not on it: this node joins the others again",
                identity.node,
            )
            self._join()
        else:
            self.look(now_ms)

    def look(self, now_ms: int) -> None:
        """Decide if possible; called after every new Hello and periodically."""
        if self._callback is None:
            return
        own = self.directory.identity
        waited_ms = 0 if self._leader_heard_ms is None else now_ms - self._leader_heard_ms
        lost = [h.node for h in self.hellos.values() if h.known_as not in (0, int(own.disk, 16))]
        if lost:
            log.warning(
                "%s: %s has founded the cluster with another disk of this node: what that held is "
                "lost, so this node joins the others",
                own.node,
                ", ".join(sorted(lost)),
            )
        if (
            lost
            or any(hello.formed for hello in self.hellos.values())
            or waited_ms > self.config.suspect_after_ms
        ):
            self._join()
            return
        missing = tuple(sorted(self.config.peers.keys() - self.hellos.keys()))
        if not missing:
            self._found()
        elif missing != self._missing or now_ms - self._said_ms >= REMIND_MS:
            self._missing, self._said_ms = missing, now_ms
            log.info(
                "%s: waiting for node%s %s to form the cluster of %s",
                own.node,
                "s" if len(missing) > 1 else "",
                ", ".join(missing),
                ", ".join(self.founders),
            )

    def leader_heard(self, now_ms: int) -> None:
        """Take note that group 0 has a leader already.

        1. a, b, c are to form the cluster. a has reached b, and waits for c.  2. b and c form it.
        3. c crashes: a would wait for it forever. In an ordinary start a reaches c a moment later.
        """
        if self._callback is not None and self._leader_heard_ms is None:
            self._leader_heard_ms = now_ms

    def _join(self) -> None:
        known = set(self.hellos) | self.config.peers.keys()
        own = self.directory.identity.node
        log.info("%s: joins the cluster of %s", own, ", ".join(sorted(known)) or "no known node")
        self._decide(BootstrapPlan(True, tuple(sorted(known | {own}))))

    def _found(self) -> None:
        own = self.directory.identity
        disks = {node: f"{self.hellos[node].disk:016x}" for node in self.config.peers}
        if not self.change(founders={**disks, own.node: own.disk}):
            return
        voters = tuple(sorted({own.node, *disks}))
        log.info("%s: forms the cluster of %s", own.node, ", ".join(voters))
        self._decide(BootstrapPlan(False, voters))

    def _decide(self, formation: BootstrapPlan) -> None:
        callback, self._callback = self._callback, None
        assert callback is not None
        callback(formation)

    # ------------------------------------------------------------ the identity on disk

    def recognize(self, found: GroupStore | None) -> None:
        """Mark the cluster formed if group 0, as found on disk, proves it."""
        if found is None:
            return
        if found.snapshot_index:
            whole = found.first_index() == 1 and found.last_index() > 0
            self.committed((found.read(1),) if whole else ())

    def committed(self, entries: Sequence[Entry]) -> None:
        """Mark the cluster formed: these entries of group 0 (none: a snapshot) are committed."""
        identity = self.directory.identity
        if identity.formed and identity.cluster_id:
            return
        found = next((h.cluster_id for h in self.hellos.values() if h.formed and h.cluster_id), 0)
        if entries and entries[0].index == 1:
            found = (entries[0].time_ms << 20 | entries[0].term & 0xFFFFF) & 0xFFFFFFFFFFFFFFFF
        cluster_id = f"{found:016x}" if found else identity.cluster_id
        version = max(identity.version, self.config.versions.oldest)
        self.change(formed=True, cluster_id=cluster_id, version=version)

    def met(self, hello: Hello, address: Address, now_ms: int) -> None:
        """Take a new connection's Hello into account; `hellos` has it already."""
        own = self.directory.identity
        if own.peers.get(hello.node) != address:
            self.change(peers={**own.peers, hello.node: address})
        if own.formed and not own.cluster_id:
            self.committed(())
        self.look(now_ms)

    def forget(self, node: NodeId) -> None:
        """Forget a node that is no longer a peer."""
        peers = dict(self.directory.identity.peers)
        if peers.pop(node, None) is not None:
            self.change(peers=peers)

    def change(self, **fields: object) -> bool:
        """Durably change the node's identity; False: there is no space, try again later."""
        try:
            self.directory.change(**fields)
        except OSError as error:
            if not is_full(error):
                raise WriteFailed(self.directory.path, error) from error
            log.warning("%s: no space in %s", self.config.node, self.directory.path)
            return False
        return True
