"""Consumers of suspected nodes, from which their queue has taken back what they held."""

from __future__ import annotations

from typing import Any, TypeAlias

from sim.whole.letters import AppliedEntry
from sim.whole.process import DISCONNECTED_MS
from warren_machines.queue import commands

Key: TypeAlias = tuple[int, int, int]
"""Group, uplink, consumer."""


class Disconnects:
    """A check from outside the machine, entry by entry, by the time of a queue's log.

    1. A queue suspects a node; the ways to it are cut for two seconds.  2. The leader's clock jumps
    forward by 20 s: the time of the log is past the consumer-disconnected-timeout of 12 s.  3. What
    the node's consumers hold returns, is delivered to them again when the node is back, and has
    other numbers then.  So the time of the log decides, not the world's.
    Replayed by tests/sim/test_blameless.py

    since  (group, node) -> the time of the log when the node was suspected
    taken  consumers from which messages may have been taken back
    """

    def __init__(self) -> None:
        self.since: dict[tuple[int, str], int] = {}
        self.taken: dict[Key, bool] = {}

    def applied(self, entry: AppliedEntry, state: Any) -> None:
        """Take note of an entry that was applied; state: after it."""
        over = {
            node
            for (group, node), since in self.since.items()
            if group == entry.group and entry.now >= since + DISCONNECTED_MS
        }
        for command in entry.submission.commands:
            if isinstance(command, commands.NodeSuspected):
                self.since.setdefault((entry.group, command.node), entry.now)
                over |= {command.node} if command.gone else set()
            elif isinstance(command, commands.NodeBack):
                self.since.pop((entry.group, command.node), None)
        for uplink in state.uplinks.values() if over else ():
            if uplink.node in over:
                for consumer in uplink.consumers:
                    self.taken[entry.group, uplink.id, consumer] = True
