"""Messages that could not be handled, and the boundary that contains their faults.

The code that handles one message (a delivery, a dead letter, an answer to basic.get) serves every
client of the node. A fault there must affect that message alone: it is logged, it is counted, and
the queue continues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from warren_broker.cluster import messages
from warren_raft.runtime.host import Host, UnknownGroup
from warren_raft.runtime.loop import Loop
from warren_raft.storage.errors import EntryDamaged

log = logging.getLogger(__name__)

LINES_MAX = 20
"""Log lines of one queue within WINDOW_MS; further messages are counted only."""
WINDOW_MS = 10_000


class LeaderView(Protocol):
    """The part of the cluster that `SetAsideCounts` needs."""

    loop: Loop
    host: Host
    handlers: dict[type, Callable[[str, Any, memoryview], None]]

    def leader_of(self, group: int) -> str | None:
        """Return the node to send to, if one is known."""


class SetAsideCounts:
    """The number of messages that were set aside, by group.

    A queue's leader counts since its start: another node that sets a message aside (one that cannot
    be sent to a client there) reports it to the leader.
    """

    def __init__(self, cluster: LeaderView) -> None:
        self._cluster = cluster
        self._counts: dict[int, int] = {}
        self._windows: dict[int, tuple[int, int]] = {}
        cluster.handlers[messages.MessagesSetAside] = self._on_set_aside

    def count(self, group: int) -> int:
        """Return the number of messages of that queue, as far as this node knows."""
        return self._counts.get(group, 0)

    def learn(self, group: int, count: int) -> None:
        """Set the count reported by the leader."""
        if count or group in self._counts:
            self._counts[group] = count

    def forget(self, group: int) -> None:
        """Drop the count of a deleted queue."""
        self._counts.pop(group, None)
        self._windows.pop(group, None)

    def note(self, group: int, where: str, reason: str, count: int = 1) -> None:
        """Count and log messages of that queue that were set aside.

        where  the entry, and the ordinals in its block or the delivery's number
        """
        self._add(group, count)
        if self._may_log(group):
            log.error("queue %s: %s set aside: %s", self.name(group), where, reason)
        leader = self._cluster.leader_of(group)
        if leader is not None and leader != self._cluster.host.node_id:
            self._cluster.host.send(
                leader, messages.encode(messages.MessagesSetAside(group, count))
            )

    def name(self, group: int) -> str:
        """Return the queue's name if this node is a member of it, else the group's number."""
        try:
            config = self._cluster.host.state(group).config
        except UnknownGroup:
            return f"of group {group}"
        return f"{config.name!r} in vhost {config.vhost!r}"

    def attempt(
        self, group: int, where: str, call: Callable[..., object], *args: object, count: int = 1
    ) -> bool:
        """Call it; return False when it failed: the messages are noted, the fault is contained.

        An entry that is damaged or no longer here is not a fault: the caller handles it.
        """
        try:
            call(*args)
        except (EntryDamaged, KeyError, UnknownGroup):
            raise
        except Exception as fault:
            log.exception("queue %s: %s cannot be handled", self.name(group), where)
            self.note(group, where, repr(fault), count)
            return False
        return True

    def _on_set_aside(
        self, node: str, message: messages.MessagesSetAside, rest: memoryview
    ) -> None:
        if self._cluster.host.is_leader(message.group):
            self._add(message.group, message.count)

    def _add(self, group: int, count: int) -> None:
        self._counts[group] = self._counts.get(group, 0) + count

    def _may_log(self, group: int) -> bool:
        now = self._cluster.loop.now_ms
        began, lines = self._windows.get(group, (now, 0))
        if now - began >= WINDOW_MS:
            if lines > LINES_MAX:
                log.error(
                    "queue %s: %d more messages were set aside", self.name(group), lines - LINES_MAX
                )
            began, lines = now, 0
        self._windows[group] = (began, lines + 1)
        return lines < LINES_MAX
