"""Leadership transfers from one node to another on request."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from warren_broker.cluster import messages
from warren_broker.cluster.cluster import Cluster
from warren_broker.cluster.request_timeouts import RequestTimeouts
from warren_raft.errors import NotLeader, UsageError
from warren_raft.runtime.host import UnknownGroup

log = logging.getLogger(__name__)
MOVES_MAX = 16
"""Requested leadership transfers in progress at one time."""
TRANSFER_PATIENCE_MS = 5_000
"""A transfer that takes longer is given up: its node may have died, or lag far behind."""

Arrived = Callable[[bool], None]
"""Called once: whether the node leads."""


@dataclass(frozen=True, slots=True)
class Move:
    """A requested transfer of a group's leadership to a node."""

    group: int
    to: str
    done: Arrived


class LeaderTransfer:
    """Asks leaders, this node included, to transfer leaderships; a bounded number at a time.

    Invariant: a move is in `_waiting` or in `_under_way`, and leaves it by completion, by timeout,
    or by a later move of the same group.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeouts = RequestTimeouts(cluster.loop, TRANSFER_PATIENCE_MS)
        self._waiting: OrderedDict[int, Move] = OrderedDict()
        self._under_way: dict[int, tuple[Move, int]] = {}
        cluster.handlers[messages.HandOver] = self._on_hand_over
        cluster.on_leader.append(self._leader)

    @property
    def count(self) -> int:
        """Moves that are not complete."""
        return len(self._waiting) + len(self._under_way)

    def move(self, group: int, to: str, done: Arrived = lambda arrived: None) -> None:
        """Transfer the group's leadership to `to` when its turn comes; gives up an earlier move."""
        older = self._waiting.pop(group, None)
        if older is not None:
            older.done(False)
        self._finish(group, False)
        self._waiting[group] = Move(group, to, done)
        self._go_on()

    def candidates(self, group: int, unfit: Iterable[str]) -> list[str]:
        """Return the nodes that could lead a group led here, the most up-to-date first.

        These are reachable voters; of them the ones with fast disks, if there are any.
        """
        host = self._cluster.host
        if not host.is_leader(group):
            return []
        able = [
            one
            for one in host.member_states(group)
            if one.voter
            and not (one.leader or one.suspected or one.lost or one.changing)
            and one.node not in unfit
            and host.connected(one.node)
        ]
        able = [one for one in able if not host.disk_slow(one.node)] or able
        return [one.node for one in sorted(able, key=lambda one: (-one.match, one.node))]

    def _go_on(self) -> None:
        while self._waiting and len(self._under_way) < MOVES_MAX:
            group, move = self._waiting.popitem(last=False)
            if self._cluster.leader_of(group) == move.to:
                move.done(True)
                continue
            number = self._timeouts.add(partial(self._finish, group, False))
            self._under_way[group] = (move, number)
            self._ask(move)

    def _ask(self, move: Move) -> None:
        cluster = self._cluster
        leader = cluster.leader_of(move.group)
        message = messages.HandOver(move.group, move.to)
        if leader is None:
            cluster.ask_who_leads(move.group)
        elif leader == cluster.host.node_id:
            self._on_hand_over(leader, message, memoryview(b""))
        else:
            cluster.host.send(leader, messages.encode(message))

    def _finish(self, group: int, arrived: bool) -> None:
        found = self._under_way.pop(group, None)
        if found is None:
            return
        move, number = found
        self._timeouts.answered(number)
        move.done(arrived)
        self._go_on()

    def _leader(self, group: int) -> None:
        found = self._under_way.get(group)
        if found is None:
            return
        if self._cluster.leader_of(group) == found[0].to:
            self._finish(group, True)
        else:
            self._ask(found[0])  # the leader is not the one that was asked

    def _on_hand_over(self, node: str, message: messages.HandOver, rest: memoryview) -> None:
        host = self._cluster.host
        if not host.is_leader(message.group):
            return
        try:
            self._cluster.hand_over(message.group, message.to)
        except (NotLeader, UnknownGroup, UsageError) as error:
            log.info("group %d: no leadership transfer to %s: %s", message.group, message.to, error)
