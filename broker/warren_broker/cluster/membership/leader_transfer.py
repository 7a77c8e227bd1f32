"""Leaderships that are handed from one node to another on purpose."""

from __future__ import annotations

import logging
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
"""Leaderships on their way at one time, of those that were asked for here."""
TRANSFER_PATIENCE_MS = 5_000
"""One that has not arrived by then is given up: its node may have died, or be far behind."""

Arrived = Callable[[bool], None]
"""Called once: whether the node leads."""


@dataclass(frozen=True, slots=True)
class Move:
    """That group is to be led by that node."""

    group: int
    to: str
    done: Arrived


class LeaderTransfer:
    """Asks leaders, this node included, to hand over; a bounded number at a time.

    Invariant: a move is in `_waiting` or in `_under_way`, and leaves it by arriving, by taking too
    long, or by a later move of the same group.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._timeouts = RequestTimeouts(cluster.loop, TRANSFER_PATIENCE_MS)
        self._waiting: dict[int, Move] = {}
        self._under_way: dict[int, tuple[Move, int]] = {}
        cluster.handlers[messages.HandOver] = self._on_hand_over
        cluster.on_leader.append(self._leader)

    @property
    def count(self) -> int:
        """Moves that have not arrived."""
        return len(self._waiting) + len(self._under_way)

    def move(self, group: int, to: str, done: Arrived = lambda arrived: None) -> None:
        """Let `to` lead the group, when its turn has come; an earlier move of it is given up."""
        older = self._waiting.pop(group, None)
        if older is not None:
            older.done(False)
        self._finish(group, False)
        self._waiting[group] = Move(group, to, done)
        self._go_on()

    def candidates(self, group: int, unfit: Iterable[str]) -> list[str]:
        """Which nodes could lead a group that this node leads, the furthest first: voters that are
        reachable; of these the ones with fast disks, where there are any."""
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
            group = next(iter(self._waiting))
            move = self._waiting.pop(group)
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
            self._ask(found[0])  # another one leads than was asked

    def _on_hand_over(self, node: str, message: messages.HandOver, rest: memoryview) -> None:
        host = self._cluster.host
        if not host.is_leader(message.group):
            return
        try:
            host.transfer(message.group, message.to)
        except (NotLeader, UnknownGroup, UsageError) as error:
            log.info("group %d is not handed over to %s: %s", message.group, message.to, error)
