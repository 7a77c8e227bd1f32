"""The retention of WAL files: which are still needed."""

from __future__ import annotations

from warren_raft.types import GroupId


class FileUse:
    """The existing groups with records in each WAL file that must be replayed."""

    __slots__ = ("live",)

    def __init__(self) -> None:
        self.live: dict[int, set[GroupId]] = {}

    def add_file(self, file: int) -> None:
        """Add a file."""
        self.live.setdefault(file, set())

    def mention(self, file: int, group: GroupId) -> None:
        """Record that the file has a record of that group."""
        self.live[file].add(group)

    def end(self, group: GroupId) -> None:
        """Drop a group that was deleted: its records are void."""
        for groups in self.live.values():
            groups.discard(group)

    def unneeded(self, current: int) -> list[int]:
        """Return the oldest files, below `current`, without a record of an existing group.

        Only from the oldest on: numbers are without gaps, so that a missing file is detected.
        """
        gone: list[int] = []
        for file in sorted(self.live):
            if file >= current or self.live[file]:
                break
            gone.append(file)
        return gone

    def remove(self, file: int) -> None:
        """Forget a file."""
        del self.live[file]
