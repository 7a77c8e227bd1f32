"""The state of the other nodes, reported to every group that has them as members."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from warren_raft.core.raft_node import RaftNode
from warren_raft.runtime.config import Address, HostConfig
from warren_raft.runtime.failure_detector import FailureDetector, News
from warren_raft.runtime.group import Group
from warren_raft.runtime.loop import Clock, Loop
from warren_raft.runtime.net.handshake import Hello, SecondProcess
from warren_raft.runtime.net.transport import Transport
from warren_raft.runtime.observer import Observer
from warren_raft.storage.errors import DirectoryRefused
from warren_raft.types import GroupId, NodeId, TimeMs

log = logging.getLogger("warren.raft")
SECOND_SUSPICIONS = 2
"""A process refused as a node's second one for this multiple of `suspect_after_ms` ends."""


@dataclass(eq=False, repr=False)
class Peers:
    """The known peers: which are suspected, and which process of each connected last.

    A member that is not a peer (its address is not known) counts as suspected: nothing can be sent
    to it.
    Invariant: a group's core suspects exactly those of its members that are `silent`, except peers
    that were added and have not connected yet

    groups: a view of the host's groups; touch: have the group's Ready taken.
    """

    config: HostConfig
    loop: Loop
    transport: Transport
    groups: dict[GroupId, Group]
    observer: Observer
    touch: Callable[[Group], None]
    _boots: dict[NodeId, int] = field(default_factory=dict)
    _second: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    _twins: dict[NodeId, tuple[int, int]] = field(default_factory=dict)
    hellos: dict[NodeId, Hello] = field(default_factory=dict)
    stopped: bool = False
    _clock: Clock = field(init=False)
    _detector: FailureDetector = field(init=False)

    def __post_init__(self) -> None:
        self._clock = self.loop.clock
        self._detector = FailureDetector(
            self.config.suspect_after_ms,
            self.config.disconnect_grace_ms,
            self._clock.monotonic_ms(),
        )

    # ------------------------------------------------------------ the peers

    def add(self, node: NodeId, address: Address) -> None:
        """Add a node whose address became known, or changed."""
        self._detector.add(node, self._clock.monotonic_ms())
        self.transport.add_peer(node, address)

    def remove(self, node: NodeId) -> None:
        """Forget a peer."""
        self.transport.remove_peer(node)
        self._detector.remove(node)
        self._boots.pop(node, None)
        self._second.pop(node, None)
        self._twins.pop(node, None)
        self.hellos.pop(node, None)
        self._tell_groups(node, RaftNode.peer_suspected)

    def _tell_groups(self, node: NodeId, tell: Callable[[RaftNode, NodeId, TimeMs], None]) -> None:
        now = self._clock.epoch_ms()
        for group in list(self.groups.values()):
            if group.concerns(node):
                tell(group.node, node, now)
                self.touch(group)

    def suspected(self, node: NodeId) -> bool:
        """Return whether a peer is suspected; this node itself never is."""
        return self._detector.suspected(node)

    def conditions(self) -> dict[str, int]:
        """See `RaftMeasures.peers`."""
        return self._detector.conditions()

    def silent_since_ms(self, node: NodeId) -> int | None:
        """Return when a suspected peer was heard last, by the loop's clock; None: not suspected."""
        return self._detector.silent_since_ms(node)

    def gone(self, node: NodeId) -> bool:
        """Return whether a peer is suspected and its port refuses connections."""
        return self._detector.gone(node)

    def silent(self, node: NodeId) -> bool:
        """Return whether it is suspected, or its address is not known."""
        return self._detector.suspected(node) or not self._detector.knows(node)

    def boot_id(self, node: NodeId) -> int | None:
        """Return the boot id of that node's last connection."""
        return self._boots.get(node)

    def acquaint(self, group: Group) -> None:
        """Tell a group whose members have changed which of the new ones are silent."""
        node = group.node
        group.members = node.membership
        now = self._clock.epoch_ms()
        for member in group.members.voters + group.members.learners:
            if member != self.config.node:
                silent = self.silent(member)
                if silent and member not in node.suspected:
                    node.peer_suspected(member, now)
                elif not silent and member in node.suspected:
                    node.peer_connected(member, now)

    # ------------------------------------------------------------ failure detection

    def beat(self) -> None:
        """Send heartbeats and check for suspicions, once per heartbeat interval."""
        for node, heard_ms in self.transport.heartbeat():
            self._detector.heard(node, heard_ms)
        self._check()

    def _check(self) -> None:
        if not self.stopped:
            self._tell(self._detector.check(self._clock.monotonic_ms()))

    def _tell(self, news: list[tuple[NodeId, News]]) -> None:
        for node, what in news:
            suspected = what is News.SUSPECTED
            log.info("%s: node %s is %s", self.config.node, node, what.value)
            if what is News.GONE:
                self.observer.peer_gone(node)
                continue
            tell = RaftNode.peer_suspected if suspected else RaftNode.peer_connected
            self._tell_groups(node, tell)
            if suspected:
                self.loop.call_later(self.config.suspect_after_ms, partial(self._renew, node))
                self.observer.peer_suspected(node)
            else:
                self.transport.heard_again(node)
                self.observer.peer_back(node)

    def _renew(self, node: NodeId) -> None:
        if not self.stopped and self._detector.suspected(node):
            self.transport.renew(node)

    # ------------------------------------------------------------ events of the transport

    def check_alone(self, hello: Hello) -> None:
        """Raise SecondProcess when another process with that one's directory is connected.

        1. A node's directory is copied, and both copies are started under its name.  2. The one
        that called last would have the connection: some of a leader's appends, of its leases and
        of the votes went to the one, some to the other, and both answered for one member.  So the
        first one stays, until its connection ends or it is suspected: a node that restarts while
        its old connection is still open, and silent, is accepted then. Whether the first one is
        alive is said only once it has been heard since: this node may have been stopped itself, and
        may not know yet that the first one has died.
        Replayed by tests/raft/runtime/test_twins.py
        """
        node = hello.node
        known = self.hellos.get(node)
        if known is None or known.boot_id == hello.boot_id or known.disk != hello.disk:
            return
        if self.transport.up(node) and not self._detector.suspected(node):
            boot_id, since_ms = self._twins.get(node, (0, 0))
            if boot_id != hello.boot_id:
                since_ms = self._clock.monotonic_ms()
                self._twins[node] = hello.boot_id, since_ms
            raise SecondProcess(
                f"another process of node {node!r} is connected, with a copy of its data "
                "directory; stop one of the two: a further node needs an empty directory and a "
                "name of its own",
                self.transport.heard_ms(node) > since_ms,
            )

    def met(self, hello: Hello) -> None:
        """Record the node of a new connection; an unknown node becomes a peer."""
        self._detector.add(hello.node, self._clock.monotonic_ms())
        self.hellos[hello.node] = hello

    def on_up(self, node: NodeId, boot_id: int) -> None:
        """See TransportOwner."""
        self._second.pop(node, None)
        self._twins.pop(node, None)
        old = self._boots.get(node)
        self._boots[node] = boot_id
        restarted = old is not None and old != boot_id
        self._tell_groups(node, RaftNode.peer_restarted if restarted else RaftNode.peer_connected)
        news = self._detector.connected(node, self._clock.monotonic_ms())
        if old is not None and restarted:
            self.observer.peer_restarted(node, old, boot_id)
        self.observer.peer_up(node, boot_id)
        for back, _ in news:
            log.info("%s: node %s is back", self.config.node, back)
            self.observer.peer_back(back)

    def on_down(self, node: NodeId) -> None:
        """See TransportOwner."""
        grace = self._detector.disconnected(node, self._clock.monotonic_ms())
        if grace is not None:
            self.loop.call_later(grace, self._check)
        self.observer.peer_down(node)

    def on_refused(self, node: NodeId) -> None:
        """See TransportOwner."""
        self._tell(self._detector.refused(node))

    def on_second(self, node: NodeId) -> None:
        """See TransportOwner; raises DirectoryRefused, which ends this process.

        That peer has heard the other process since it refused this one first, and may not know yet
        that it has ended. If it says so for twice the time to suspect that process, without a pause
        of its own, there are two processes, and the later one ends: a peer that restarts could
        accept it while the others are connected with the first.
        """
        now = self._clock.monotonic_ms()
        since, last = self._second.get(node, (now, now))
        if now - last > max(self.config.suspect_after_ms, 4 * self.config.reconnect_ms_max):
            since = now
        self._second[node] = since, now
        if now - since >= SECOND_SUSPICIONS * self.config.suspect_after_ms:
            raise DirectoryRefused(
                self.config.data_dir,
                f"node {node} is connected with another process that has a copy of it",
                "stop that one, or give this node an empty directory and a name of its own",
            )

    def on_removed(self, node: NodeId) -> None:
        """See TransportOwner; raises DirectoryRefused, which ends this process.

        1. A node is cut off, and is removed from the cluster.  2. The link is back; no peer accepts
        it any more.  3. Were it to continue, its clients would use the queues that it has alone:
        what is confirmed there no other node ever learns of.
        No directory that was removed is taken back, so one peer's word is enough.
        """
        raise DirectoryRefused(
            self.config.data_dir,
            f"this node was removed from the cluster with it, says node {node}",
            "empty it to let the node join as a new one, or take the node out of service",
        )
