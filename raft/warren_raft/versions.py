"""The cluster's version: one number for everything that nodes write and send.

It counts up whenever a node would send a peer, submit to a group, or write to its disk what a
program of the version before cannot read, or would apply in another way. A program has a range: it
reads all of it, and writes each version of it in that version's form. So a cluster is upgraded node
by node:

1. Nodes of two releases run side by side, and write what the older one reads.
2. When every node has the newer version, the metadata group raises the cluster's version
   (`warren_machines.metadata.cluster_version`). It never falls.
3. Each node marks its directory before it writes, or lets a peer write, anything of that version
   (`Host.raise_version`), and a program without it refuses the directory.

A release with a new version raises NEWEST by one; one that drops a version raises OLDEST.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from warren_raft.errors import StorageError

OLDEST: Final = 1
NEWEST: Final = 2
READ_AHEAD: Final = 2
"""From this version on a queue gives consumers messages that their node keeps for them, and takes
back uncounted what a client was never sent."""


class Versions(NamedTuple):
    """The versions that a program reads and writes."""

    oldest: int
    newest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.oldest <= version <= self.newest

    def __str__(self) -> str:
        one = self.oldest == self.newest
        return f"version {self.newest}" if one else f"versions {self.oldest} to {self.newest}"


OWN: Final = Versions(OLDEST, NEWEST)
FIRST: Final = Versions(1, 1)
"""Of a node that does not say."""


def spoken(one: Versions, other: Versions) -> int:
    """Return the version that a link between two programs speaks; 0: they have none in common."""
    newest = min(one.newest, other.newest)
    return newest if newest >= max(one.oldest, other.oldest) else 0


def remedy(versions: Versions, wanted: int) -> str:
    """Return what to do about a program without a version that is wanted of it."""
    if wanted > versions.newest:
        return f"start it with a release that has version {wanted}"
    return (
        f"start it with a release that still has version {wanted}, and upgrade it when the cluster "
        f"has version {versions.oldest}"
    )


@dataclass(eq=False, repr=False)
class VersionNeeded(StorageError):
    """Something that only a later release can read: the node ends, because it may not be skipped.

    what  the entry, snapshot or cluster
    """

    what: str
    version: int
    own: Versions

    def __str__(self) -> str:
        return (
            f"{self.what} is of version {self.version}, and this program has {self.own}; "
            f"{remedy(self.own, self.version).replace('start it', 'start this node')}"
        )
