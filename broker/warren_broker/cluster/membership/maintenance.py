"""Maintenance mode: this node serves no client, and leads nothing that another node can lead."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from warren_broker.cluster.cluster import HAND_OVER_WAIT_MS, Cluster
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.membership.requested_transfers import LeaderTransfer
from warren_raft.errors import NotLeader, UsageError
from warren_raft.runtime.host import UnknownGroup

T = TypeVar("T")
log = logging.getLogger(__name__)
HANDED_OVER_MAX = 32
"""Leaderships transferred in one step."""
STEP_MS = 100
DRAIN_RETRY_MS = 2_000
"""Interval between attempts for groups that no other node could take."""
MAINTENANCE_REASON = "Node was put into maintenance mode"
"""RabbitMQ's text for the connections that it closes."""


class Maintenance:
    """Follows this node's `drained` in the definitions.

    on_drained  functions that are called when it changes: the server closes its listener and its
                connections, or opens the listener again
    """

    def __init__(
        self, cluster: Cluster, definitions: Definitions, leader_transfer: LeaderTransfer
    ) -> None:
        self._cluster = cluster
        self._definitions = definitions
        self._leader_transfer = leader_transfer
        self._planned = False
        self._answering = 0
        self.drained = False
        self.on_drained: list[Callable[[bool], None]] = []
        definitions.on_nodes.append(lambda node: self._look())
        definitions.on_ready.append(self._look)
        cluster.on_led.append(self._led)

    def answer_first(self, done: Callable[[T], None]) -> Callable[[T], None]:
        """Wrap `done`; until it is called, no client of this node is disconnected.

        1. A client asks this node to put itself into maintenance.  2. The definitions say so.
        3. Its connection is closed. If that happened before the answer, the client would ask again,
        and without another known node until it gives up: this node's port is closed.
        """
        self._answering += 1

        def answered(result: T) -> None:
            done(result)
            self._answering -= 1
            self._cluster.loop.call_later(0, self._look)

        return answered

    def unfit(self) -> list[str]:
        """Return the nodes that must not lead anything: drained, or leaving the cluster."""
        nodes = self._definitions.state.nodes.values()
        return [one.name for one in nodes if one.drained or one.forgetting]

    def hand_over(self, group: int, wait_ms: int = HAND_OVER_WAIT_MS) -> bool:
        """Transfer the group's leadership to an up-to-date fit node; return whether one exists."""
        candidates = self._leader_transfer.candidates(group, self.unfit())
        queue = self._definitions.state.groups.get(group)
        if queue is not None:
            # A node that is to leave the group would hand it back.
            candidates = [node for node in candidates if node in queue.nodes]
        if not candidates:
            return False
        try:
            self._cluster.hand_over(group, candidates[group % len(candidates)], wait_ms)
        except (NotLeader, UnknownGroup, UsageError):
            return False
        return True

    def _look(self) -> None:
        # Until this process's own start is known, the definitions describe an older incarnation,
        # which may have been drained; the restart ended that.
        own = self._definitions.state.nodes.get(self._cluster.host.node_id)
        drained = own is not None and own.drained and self._definitions.ready
        if drained == self.drained or (drained and self._answering):
            return
        self.drained = drained
        log.warning(
            "this node is put into maintenance: closing connections, transferring leaderships"
            if drained
            else "this node is in service again"
        )
        for call in self.on_drained:
            call(drained)
        self._plan(0)

    def _led(self, group: int) -> None:
        if self.drained:
            self._plan(STEP_MS)

    def _plan(self, delay_ms: int) -> None:
        if self.drained and not self._planned:
            self._planned = True
            self._cluster.loop.call_later(delay_ms, self._step)

    def _step(self) -> None:
        self._planned = False
        if not self.drained:
            return
        host = self._cluster.host
        led = [group for group in host.groups() if host.is_leader(group)]
        moved = 0
        unfit = self.unfit()
        able = any(node not in unfit for node in self._cluster.peers())
        for group in led if able else ():
            if moved >= HANDED_OVER_MAX:
                break
            moved += self.hand_over(group)
        if led:
            self._plan(STEP_MS if moved else DRAIN_RETRY_MS)
