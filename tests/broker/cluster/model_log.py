"""What the model of Raft keeps: a group's log, its members on disks, what must never happen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from warren_raft.types import EntryKind, Membership


class Violation(AssertionError):
    """What must never happen has happened."""


class Died(BaseException):
    """The running node is dead: nothing of it continues."""


@dataclass
class Log:
    """One group, as all its members together know it.

    entries  (kind, data), the first has index 1; committed: how many
    """

    group: int
    base: Membership
    entries: list[tuple[EntryKind, Any]] = field(default_factory=list)
    committed: int = 0
    leader: str | None = None
    term: int = 0

    def membership(self, upto: int | None = None) -> Membership:
        """In effect after so many entries."""
        for kind, data in reversed(self.entries[:upto]):
            if kind is EntryKind.CONFIG:
                return data
        return self.base


@dataclass(frozen=True)
class Stored:
    """An entry as it is read."""

    data: bytes


@dataclass
class Member:
    """A group's log on one disk, with the state that the running process has made of it."""

    identity: int
    held: int = 0
    machine: Any = None
    state: Any = None
    applied: int = 0
    leading: bool = False
    told: tuple[str | None, int] = (None, 0)
