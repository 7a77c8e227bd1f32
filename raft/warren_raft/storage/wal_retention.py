"""Which WAL files are still needed."""

from __future__ import annotations

from warren_raft.types import GroupId


class FileUse:
    """Per WAL file that is to be replayed: the existing groups with records in it."""

    __slots__ = ("live",)

    def __init__(self) -> None:
        self.live: dict[int, set[GroupId]] = {}

    def add_file(self, file: int) -> None:
        """Add a file."""
        self.live.setdefault(file, set())

    def mention(self, file: int, group: GroupId) -> None:
        """Note that the file has a record of that group."""
        self.live[file].add(group)

    def end(self, group: GroupId) -> None:
        """Note that the group was deleted: its records are void."""
        for groups in self.live.values():
            groups.discard(group)

    def unneeded(self, current: int) -> list[int]:
        """Return the oldest files, below `current`, without a record of an existing group.

        Only from the oldest on: numbers are without gaps, so that a missing file is noticed.
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
