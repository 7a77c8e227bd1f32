"""Data of one cluster rewritten for another one: another cluster id, other nodes, other members.

The cluster id is what keeps the two apart: nodes refuse a peer with another one (`bootstrap`), and
the disks of the earlier nodes are listed as removed besides (`other_nodes`). Claims, readers,
stages, confirmed messages and the state of deduplication stay as they are. What belonged to the
processes of the earlier nodes ends as when a node is forgotten: exclusive queues here; consumers,
sessions and uplinks of a queue by the leader that it gets, because their incarnations are over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from warren_machines.metadata.machine import MetadataMachine
from warren_machines.metadata.other_nodes import move_to
from warren_machines.metadata.records import ClusterNode, QueueRecord
from warren_machines.metadata.state import MetadataState
from warren_raft.machine import Meta
from warren_raft.runtime.offline import OfflineLogs
from warren_raft.storage.files import Files
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import METADATA_GROUP, Entry

UNFINISHED = ".unfinished"
"""Behind the name of a directory that is being written."""


@dataclass(frozen=True, slots=True)
class NewCluster:
    """The cluster that data are rewritten for.

    cluster_id  16 hexadecimal digits, see `draw_cluster_id`
    nodes       all of them; the disk of each is that of its directory
    """

    name: str
    cluster_id: str
    nodes: tuple[ClusterNode, ...]


class MovedDefinitions(NamedTuple):
    """The metadata group, rewritten.

    lost  queues that were deleted because no node has them
    """

    snapshot: Snapshot
    state: MetadataState
    lost: tuple[QueueRecord, ...]


class GroupImage(NamedTuple):
    """A queue's group: a snapshot, and what yields the entries that it refers to, ascending."""

    snapshot: Snapshot
    entries: Callable[[], Iterable[Entry]]


def draw_cluster_id() -> str:
    """Draw the id of a new cluster: 64 random bits."""
    return f"{int.from_bytes(os.urandom(8)) or 1:016x}"


def move_definitions(
    snapshot: Snapshot, cluster: NewCluster, members: Callable[[QueueRecord], Sequence[str]]
) -> MovedDefinitions:
    """Rewrite the metadata group's snapshot; the one returned ends one entry later.

    members  the nodes with a queue's group, its first leader first; empty: it is lost. For a queue
             that lives on one node only the first counts
    """
    machine = MetadataMachine()
    state = machine.restore(snapshot.state)
    meta = Meta(snapshot.index + 1, snapshot.term, snapshot.time_ms)
    lost = move_to(state, meta, cluster.nodes, members)
    moved = replace(
        snapshot,
        index=meta.index,
        voters=tuple(sorted(one.name for one in cluster.nodes)),
        learners=(),
        ids=(),
        state=machine.snapshot(state),
    )
    return MovedDefinitions(moved, state, lost)


def write_directory(
    path: Path,
    cluster: NewCluster,
    node: str,
    definitions: MovedDefinitions,
    images: Iterable[GroupImage],
    files: Files | None = None,
) -> None:
    """Write the data directory of one node of the cluster, which may start in it then.

    It gets the definitions, and of the images those of queues with a member on the node. A queue
    without an image begins empty. The directory is written beside `path`, and then renamed: a crash
    leaves `path` as it was, or whole.

    path    is an empty directory, or does not exist
    raises  OSError, StorageError; ValueError for an image with other entries than it needs
    """
    files = files or Files()
    if files.is_directory(path) and files.names(path):
        raise FileExistsError(f"{path} is not empty: give the node another directory, or empty it")
    beside = path.with_name(path.name + UNFINISHED)
    shutil.rmtree(beside, ignore_errors=True)
    (own,) = (one for one in cluster.nodes if one.name == node)
    with OfflineLogs(files, beside, cluster.name, node, lambda: own.disk) as logs:
        for image in (GroupImage(definitions.snapshot, tuple), *images):
            snapshot = image.snapshot
            if snapshot.group != METADATA_GROUP:
                queue = definitions.state.groups.get(snapshot.group)
                if queue is None or node not in queue.nodes:
                    continue
                snapshot = replace(snapshot, voters=tuple(sorted(queue.nodes)), learners=(), ids=())
            logs.create(snapshot.group, snapshot.voters)
            logs.install(snapshot, image.entries())
        version = definitions.state.version
        logs.directory.change(formed=True, cluster_id=cluster.cluster_id, version=version)
    files.rename(beside, path)
