"""Which files of the log are still needed."""

from __future__ import annotations

from collections.abc import Collection

from warren_raft.types import GroupId


class FileUse:
    """Per file: which groups have records in it, and which ends of groups it tells of.

    live  groups that exist and have records in the file
    void  groups that were deleted and have records in the file
    ends  groups whose GROUP_DELETED stands in the file
    Invariant: the three have the same files as keys
    """

    __slots__ = ("ends", "live", "void")

    def __init__(self) -> None:
        self.live: dict[int, set[GroupId]] = {}
        self.void: dict[int, set[GroupId]] = {}
        self.ends: dict[int, set[GroupId]] = {}

    def add_file(self, file: int) -> None:
        """That file exists."""
        for table in (self.live, self.void, self.ends):
            table.setdefault(file, set())

    def mention(self, file: int, group: GroupId) -> None:
        """The file has a record of that group."""
        self.live[file].add(group)

    def end(self, file: int, group: GroupId) -> None:
        """The file says that the group was deleted."""
        for number, groups in self.live.items():
            if group in groups:
                groups.discard(group)
                self.void[number].add(group)
        self.ends[file].add(group)

    def unneeded(self, current: int, listed: Collection[GroupId] = ()) -> list[int]:
        """Files below `current` that may go, oldest first.

        listed  groups that the manifest tells of: the end of one must stay until it does not

        A file goes when nothing live is in it and no older file that stays has records of a group
        whose end it tells of: else that group would be back after the next start.
        """
        gone: list[int] = []
        staying_void: set[GroupId] = set()
        for file in sorted(self.live):
            if file >= current:
                break
            ends = self.ends[file]
            listed_end = any(group in listed for group in ends)
            if not self.live[file] and not ends & staying_void and not listed_end:
                gone.append(file)
            else:
                staying_void |= self.void[file]
        return gone

    def remove(self, file: int) -> None:
        """That file is gone."""
        for table in (self.live, self.void, self.ends):
            del table[file]
