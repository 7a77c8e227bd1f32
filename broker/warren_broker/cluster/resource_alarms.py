"""Resource alarms (memory, disk) of all nodes, as known to this one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_raft.core.quorum import majority

log = logging.getLogger(__name__)
DISK = "disk"
HAND_OVER_MS = 1_000
"""Interval between attempts to transfer the leaderships of a node with a full disk."""


class ResourceAlarms:
    """Alarms of the cluster: one node's alarm blocks publishers on all, since it stores copies.

    own      resources that this node is low on, sorted
    others   the same of every other connected node with an alarm; it is ignored while that node
             is suspected: it accepts nothing, and may never report that its alarm is over
    on_own   called with each resource and whether its alarm on this node is set now, or cleared
    reasons  all of them together, sorted, for publishers

    A node with a full disk transfers its leaderships to members with space: the group commits on
    their disks. It keeps them where those are not a majority: no member could lead then.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.on_own: list[Callable[[str, bool], None]] = []
        self._listeners: list[Callable[[tuple[str, ...]], None]] = []
        self._connected: dict[str, None] = {}
        self._full = self._handing_over = False
        self.own: tuple[str, ...] = ()
        self.others: dict[str, tuple[str, ...]] = {}
        self.reasons: tuple[str, ...] = ()

    def start(self) -> None:
        """Tell other nodes of this one's alarms, and hear of theirs, from now on."""
        cluster = self._cluster
        cluster.handlers[messages.Short] = self._on_short
        cluster.on_peer_up.append(self._peer_up)
        cluster.on_peer_down.append(self._peer_down)
        cluster.on_peer_suspected.append(lambda node: self._changed())
        cluster.on_peer_back.append(lambda node: self._changed())

    def listen(self, listener: Callable[[tuple[str, ...]], None]) -> None:
        """Call the listener with the reasons whenever they change."""
        self._listeners.append(listener)

    def is_short(self, own: tuple[str, ...]) -> None:
        """Set this node's alarms; empty: cleared."""
        if own == self.own:
            return
        changed = [(resource, True) for resource in own if resource not in self.own]
        changed += [(resource, False) for resource in self.own if resource not in own]
        self.own = own
        for resource, is_set in changed:
            for call in self.on_own:
                call(resource, is_set)
        data = messages.encode(messages.Short(own))
        for node in self._connected:
            self._cluster.host.send(node, data)
        self._changed()

    def disk_is_full(self, full: bool) -> None:
        """Record whether the disk is full."""
        self._full = full
        if full and not self._handing_over:
            self._hand_over()

    # ------------------------------------------------------------ other nodes

    def _on_short(self, node: str, message: messages.Short, rest: memoryview) -> None:
        if message.reasons:
            self.others[node] = message.reasons
        else:
            self.others.pop(node, None)
        self._changed()

    def _peer_up(self, node: str) -> None:
        self._connected[node] = None
        self._cluster.host.send(node, messages.encode(messages.Short(self.own)))

    def _peer_down(self, node: str) -> None:
        # Its alarms do not matter while it accepts nothing; it reports them when it is back.
        self._connected.pop(node, None)
        self.others.pop(node, None)
        self._changed()

    def _changed(self) -> None:
        reasons = dict.fromkeys(self.own)
        for found in self._heard().values():
            reasons.update(dict.fromkeys(found))
        now = tuple(sorted(reasons))
        self._cluster.remark = f" ({self.explained()})" if now else ""
        if now == self.reasons:
            return
        self.reasons = now
        if now:
            log.warning("publishers are blocked: %s", self.explained())
        else:
            log.warning("resource alarms cleared: publishers unblocked")
        for listener in self._listeners:
            listener(now)

    def _heard(self) -> dict[str, tuple[str, ...]]:
        suspected = self._cluster.host.suspected
        return {node: found for node, found in self.others.items() if not suspected(node)}

    def explained(self) -> str:
        """Return which node is low on which resource."""
        short = sorted(self.by_node().items())
        return "; ".join(f"{node} is low on {' & '.join(r)}" for node, r in short)

    def by_node(self) -> dict[str, tuple[str, ...]]:
        """Return the resources of which the nodes with an alarm are low, this one included."""
        short = self._heard()
        if self.own:
            short[self._cluster.host.node_id] = self.own
        return short

    # ------------------------------------------------------------ leaderships

    def _hand_over(self) -> None:
        self._handing_over = self._full
        if not self._full:
            return
        host = self._cluster.host
        for group in host.groups():
            if not host.is_leader(group):
                continue
            voters = host.members(group).voters
            able = [node for node in voters if node in self._connected and self._has_space(node)]
            if len(able) >= majority(len(voters)):
                self._cluster.hand_over(group, able[group % len(able)])
        self._cluster.loop.call_later(HAND_OVER_MS, self._hand_over)

    def _has_space(self, node: str) -> bool:
        host = self._cluster.host
        return not host.suspected(node) and DISK not in self.others.get(node, ())
