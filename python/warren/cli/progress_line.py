"""Progress on standard error while a command waits."""

from __future__ import annotations

from rich.status import Status

from warren.admin.membership import describe_member
from warren.admin.shovels import moved_so_far
from warren.cli import output
from warren_wire.admin.members import NodeStatus, QueueMembers, Rebalanced
from warren_wire.admin.shovels import ShovelInfo

NAMED_MAX = 3
"""Limit of members or queues named at a time."""


class ProgressLine:
    """A progress line that is updated on a terminal; elsewhere a line per change."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._last = ""
        self._status: Status | None = None

    def __enter__(self) -> ProgressLine:
        if output.ERRORS.is_terminal:
            self._status = output.ERRORS.status(output.plain_text(self._what))
            self._status.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self._status is not None:
            self._status.stop()

    def saw(self, seen: QueueMembers | NodeStatus | Rebalanced | ShovelInfo | None) -> None:
        """Show what something that is waited for has come to."""
        if isinstance(seen, QueueMembers):
            self._queue(seen)
        elif isinstance(seen, NodeStatus):
            self._node(seen)
        elif isinstance(seen, Rebalanced):
            self.show(f"{seen.count:,} leaders left to move")
        else:
            self.show(moved_so_far(seen))

    def _queue(self, seen: QueueMembers) -> None:
        """Show a queue with changing members."""
        moving = [member for member in seen.members if member.state != "running"]
        caught_up = sum(member.voter for member in seen.members if member.node in seen.wanted)
        parts = [f"{caught_up} of {len(seen.wanted)} members caught up"]
        parts += [describe_member(member) for member in moving[:NAMED_MAX]]
        self.show(", ".join(parts))

    def _node(self, seen: NodeStatus) -> None:
        """Show a node with members that are added or removed."""
        parts = [f"{seen.node.moving:,} queues left"]
        if seen.node.drained:
            parts.append(f"{seen.node.leaders:,} leaders left")
        parts += [
            f"{moving.name}: {describe_member(moving.member)}" for moving in seen.moving[:NAMED_MAX]
        ]
        self.show(", ".join(parts))

    def show(self, text: str) -> None:
        """Show a text, if it is another one than before."""
        if text == self._last:
            return
        self._last = text
        if self._status is not None:
            self._status.update(output.plain_text(f"{self._what}: {text}"))
        else:
            output.note(f"{self._what}: {text}")
