"""The reads of a node: questions to leaders for an index that makes a member's state current."""

from __future__ import annotations

from collections.abc import Callable

from warren_raft.runtime.group import Group
from warren_raft.runtime.linearizable_reads import ReadDone
from warren_raft.runtime.loop import Loop
from warren_raft.types import GroupId


class ReadIndexQuestions:
    """Asks with contexts that no earlier process of the node has used.

    A leader may answer a question of the process before this one to this one: an index that was
    current then. Contexts begin at the process's random boot id.
    """

    def __init__(
        self,
        boot_id: int,
        loop: Loop,
        group: Callable[[GroupId], Group],
        touch: Callable[[Group], None],
    ) -> None:
        self._context = boot_id >> 2
        self._loop = loop
        self._group = group
        self._touch = touch

    def ask(self, group: GroupId, within_ms: int, done: ReadDone) -> None:
        """Have `done` called when the state holds everything that was committed before this call.

        Costs a round of messages to the voters, shared by the reads of a turn, and no log entry.
        done      called once, later: True; False when that is unknown after `within_ms`, because
                  leadership was lost, messages were, or this member is far behind
        raises    NotLeader when no leader is known, TooManyReads, UnknownGroup
        """
        found = self._group(group)
        self._context += 1
        context = self._context
        found.node.read_index(context, self._loop.clock.epoch_ms())
        timer = self._loop.call_later(within_ms, lambda: found.reads.give_up(context))

        def answered(current: bool) -> None:
            timer.cancel()
            done(current)

        found.reads.ask(context, answered)
        self._touch(found)
