"""The errors of the disk; each names the place and the operator's remedy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warren_raft.errors import StorageError
from warren_raft.types import GroupId, Index, Term


@dataclass(eq=False, repr=False)
class DirectoryRefused(StorageError):
    """A data directory that this node must not use; nothing in it was changed."""

    path: Path
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"data directory {self.path}: {self.reason}; {self.remedy}"


@dataclass(eq=False, repr=False)
class DirectoryOutdated(StorageError):
    """A data directory that is an older copy of itself; `node.json` records it from now on."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return (
            f"data directory {self.path}: {self.reason}; the node starts again, sets its log "
            "aside, and joins its groups as one that has lost its disk"
        )


@dataclass(eq=False, repr=False)
class LogDamaged(StorageError):
    """Damage to bytes of the log that were on disk once; nothing was changed."""

    path: Path
    offset: int
    reason: str

    @property
    def what(self) -> str:
        """The place and the reason, without the consequences."""
        return f"{self.path} is damaged at byte {self.offset}: {self.reason}"

    def __str__(self) -> str:
        return (
            f"{self.what}; this node may have "
            "acknowledged what was there, so it does not start. Check the disk, then restore the "
            "file from a copy of this node, or replace the node: remove it from the cluster and "
            "let it join again with an empty directory"
        )


@dataclass(eq=False, repr=False)
class GroupAlone(LogDamaged):
    """Damage to a group that no other node has; nothing was changed."""

    group: GroupId

    def __str__(self) -> str:
        return (
            f"{self.what}; group {self.group} is on this node only, so no other can repair it, "
            "and this node does not start. Restore the file from a copy of this node, or give its "
            "groups up: move the data directory away and let the node join again with an empty one"
        )


class LogOfOtherVersion(LogDamaged):
    """A file that another version wrote; nothing was changed."""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}; start this node with the version that wrote it"


@dataclass(eq=False, repr=False)
class EntryDamaged(LogDamaged):
    """Damage to the record of one entry, which other members of the group may have.

    term  0: not known without the record; the entry is committed then
    file  the number of the file, as in `Place`
    """

    group: GroupId
    index: Index
    term: Term
    file: int

    def __str__(self) -> str:
        return f"{self.what}; it held entry {self.index} of group {self.group}"


@dataclass(eq=False, repr=False)
class WriteFailed(StorageError):
    """A write or a sync failed; what the disk holds is unknown, so the node ends."""

    path: Path
    error: OSError

    def __str__(self) -> str:
        return (
            f"{self.path} could not be written and synced ({self.error}); nothing that was not "
            "synced was acknowledged. This node ends: check the disk (space, health, "
            "mount), then start it again"
        )
