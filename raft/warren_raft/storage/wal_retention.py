"""Which files of the log are still needed."""

from __future__ import annotations

from warren_raft.types import GroupId


class FileUse:
    """Per file that is to be replayed: which groups that exist have records in it."""

    __slots__ = ("live",)

    def __init__(self) -> None:
        self.live: dict[int, set[GroupId]] = {}

    def add_file(self, file: int) -> None:
        """That file exists."""
        self.live.setdefault(file, set())

    def mention(self, file: int, group: GroupId) -> None:
        """The file has a record of that group."""
        self.live[file].add(group)

    def end(self, group: GroupId) -> None:
        """The group was deleted: its records are void."""
        for groups in self.live.values():
            groups.discard(group)

    def unneeded(self, current: int) -> list[int]:
        """The oldest files, below `current`, in which nothing living is.

        Only from the oldest on: numbers are without gaps, so that a missing file is noticed.
        """
        gone: list[int] = []
        for file in sorted(self.live):
            if file >= current or self.live[file]:
                break
            gone.append(file)
        return gone

    def remove(self, file: int) -> None:
        """That file is gone."""
        del self.live[file]
