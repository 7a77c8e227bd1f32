"""`warren-broker restore`: a backup becomes the directories of a new cluster, one node at a time.

Every node of the new cluster runs it with the same backup and the same `peers`, and what is decided
here depends on these alone: cluster id, disks, and which node has which queue. So the directories
are those of one cluster, and none of them speaks with a node of the one that was backed up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from warren_broker.backup.reform import (
    GroupImage,
    MovedDefinitions,
    NewCluster,
    draw_cluster_id,
    move_definitions,
    write_directory,
)
from warren_broker.config import NodeConfig
from warren_machines.metadata.machine import MetadataMachine
from warren_machines.metadata.records import ClusterNode, QueueRecord, numbered_above
from warren_machines.queue.machine import QueueMachine
from warren_raft.storage import snapshot as snapshot_file
from warren_raft.storage.files import Files
from warren_raft.storage.format import Damaged
from warren_raft.storage.identity import IDENTITY, open_directory
from warren_raft.storage.snapshot import Snapshot
from warren_raft.types import METADATA_GROUP, Entry, EntryKind
from warren_raft.versions import OWN, remedy
from warren_wire import errors
from warren_wire.backups import check
from warren_wire.backups import manifest as m
from warren_wire.backups.entries import decode_entries
from warren_wire.backups.store import BackupStore, store_of

LEFT_OUT: Final = 1 << 20
"""Log indexes, epochs and claims of new readers that no restored group gives out: the original may
have given them out after the backup."""
GROUPS_LEFT_OUT: Final = 1 << 16
CONNECTING: Final = ("shovel", "federation-upstream", "federation-upstream-set")
"""Components of the parameters by which a cluster connects to others."""


class RestoreRefused(Exception):
    """A directory or a backup that cannot be used; the text says why, and what to do."""


class _Backup:
    """A backup as a node of a new cluster reads it."""

    def __init__(self, store: BackupStore, manifest: m.BackupManifest) -> None:
        self._store = store
        self.manifest = manifest
        self.copies = {copy.group: copy for copy in manifest.groups}

    def snapshot(self, copy: m.GroupCopy) -> Snapshot:
        """Return a group's snapshot; raises BackupDamaged."""
        data = b"".join(check.read(self._store, file) for file in copy.snapshot)
        try:
            return snapshot_file.decode(data)
        except Damaged as damage:
            raise m.BackupDamaged(copy.snapshot[0].name, str(damage)) from damage

    def entries(self, copy: m.GroupCopy, snapshot: Snapshot) -> Iterator[Entry]:
        """Yield the entries that the snapshot refers to; raises BackupDamaged."""
        wanted = iter(snapshot.live_indexes())
        index = next(wanted, None)
        for file in copy.entries:
            for at, term, kind, time_ms, data in decode_entries(check.read(self._store, file)):
                if at == index:
                    yield Entry(at, term, EntryKind(kind), time_ms, data)
                    index = next(wanted, None)
        if index is not None:
            name = errors.named("queue", copy.name, copy.vhost)
            raise m.BackupDamaged(self.manifest.file(), f"{name}: entry {index} is in no file")


def new_cluster(settings: NodeConfig, manifest: m.BackupManifest, cluster_id: str) -> NewCluster:
    """Return the cluster of the nodes that the settings name; cluster_id "": by its backup."""
    addresses = settings.peers or {settings.node: ""}
    names = sorted(addresses)
    drawn = _hash(manifest.checksum, settings.cluster, *names)
    own = cluster_id or drawn
    nodes = tuple(ClusterNode(name, addresses[name], int(_hash(own, name), 16)) for name in names)
    return NewCluster(settings.cluster, own, nodes)


def _hash(*parts: str) -> str:
    """Return 16 hexadecimal digits, never all zero."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return digest if int(digest, 16) else "1".zfill(16)


def spread(nodes: Sequence[ClusterNode], queue: QueueRecord) -> tuple[str, ...]:
    """Return the nodes that get a queue: as many as it had, or all; the first one leads."""
    size = min(len(queue.nodes), len(nodes)) or 1
    return tuple(nodes[(queue.group + i) % len(nodes)].name for i in range(size))


def _definitions(snapshot: Snapshot, links: bool) -> Snapshot:
    """Return the definitions as those of a cluster that numbers apart from the original."""
    machine = MetadataMachine()
    state = machine.restore(snapshot.state)
    state.last_group += GROUPS_LEFT_OUT
    for scope in state.scopes.values() if not links else ():
        for key in [key for key in scope.parameters if key[0] in CONNECTING]:
            del scope.parameters[key]
    index = snapshot.index + LEFT_OUT
    return replace(snapshot, index=index, state=machine.snapshot(state))


def numbered_apart(snapshot: Snapshot, queue: QueueRecord) -> Snapshot:
    """Return a queue's snapshot with which no number is given out that the original may have given.

    1. A backup is made; then the original gives epoch 7 to a driver, and claims 12 and 13 to a new
    reader, r.  2. The queue is restored, and another driver registers as r.  With epoch 7 the first
    one, which still runs, would not be fenced. And if claims 12 and 13 were given out again, for
    other messages, a checkpoint that has 12 and 13 as read would settle these unseen.
    A reader that the backup knows keeps its numbers, so that its checkpoint continues.
    """
    machine = QueueMachine(queue.initial or queue.config, numbered_above(queue.group))
    state = machine.restore(snapshot.state)
    state.next_epoch += LEFT_OUT
    state.claim_floor += LEFT_OUT
    index = snapshot.index + LEFT_OUT
    return replace(snapshot, index=index, state=machine.snapshot(state))


def _images(backup: _Backup, moved: MovedDefinitions, node: str) -> Iterator[GroupImage]:
    """Yield the queues that the node gets."""
    for copy in backup.manifest.groups:
        queue = moved.state.groups.get(copy.group)
        if queue is not None and node in queue.nodes:
            snapshot = numbered_apart(backup.snapshot(copy), queue)
            yield GroupImage(snapshot, partial(backup.entries, copy, snapshot))


def restore(
    settings: NodeConfig, source: str, id_: str = "", cluster_id: str = "", links: bool = True
) -> str:
    """Write this node's directory of a new cluster; return what was done.

    source      where the backup is
    id_         which one; "": the newest
    cluster_id  16 hexadecimal digits, the same on every node; "": it follows from the backup, and
                from the names of cluster and nodes
    links       False: without shovels and federation, which connect to where the original does
    raises      RestoreRefused, BackupDamaged, StoreUnusable, FileNotFoundError, OSError
    """
    store = store_of(source)
    manifest = m.find(store, id_)
    if manifest.cluster_version not in OWN:
        raise RestoreRefused(
            f"backup {manifest.id} is of cluster version {manifest.cluster_version}, this program "
            f"has {OWN}; {remedy(OWN, manifest.cluster_version)}"
        )
    backup = _Backup(store, manifest)
    definitions = _definitions(backup.snapshot(backup.copies[METADATA_GROUP]), links)
    cluster = new_cluster(settings, manifest, cluster_id)
    moved = move_definitions(definitions, cluster, lambda queue: spread(cluster.nodes, queue))
    images = _images(backup, moved, settings.node)
    try:
        write_directory(settings.data_dir, cluster, settings.node, moved, images)
    except FileExistsError as error:
        raise RestoreRefused(str(error)) from error
    here = [queue for queue in moved.state.queues() if settings.node in queue.nodes]
    empty = "".join(
        f"\nnot in the backup, so it begins empty: {errors.named('queue', name, vhost)}"
        for vhost, name in manifest.missing
    )
    return (
        f"node {settings.node} of cluster {cluster.name} {cluster.cluster_id}, from backup "
        f"{manifest.id} of cluster {manifest.cluster} {manifest.cluster_id}: {len(here)} of "
        f"{len(list(moved.state.queues()))} queues are in {settings.data_dir}; the nodes are "
        f"{', '.join(one.name for one in cluster.nodes)}{empty}"
    )


def rename_copy(settings: NodeConfig, cluster_id: str = "") -> str:
    """Give a copied directory another cluster id; return what was done.

    cluster_id  the same on every node; "": it is drawn, and the text says what the others need
    raises      RestoreRefused, StorageError, OSError
    """
    files, path = Files(), Path(settings.data_dir)
    if not files.exists(path / IDENTITY):
        raise RestoreRefused(f"{path} is no data directory of a node")
    directory = open_directory(files, path, settings.cluster, settings.node)
    try:
        before = directory.identity
        if not (before.formed and before.cluster_id):
            raise RestoreRefused(f"{path} has not been in a cluster yet: copy one that has")
        given = cluster_id or draw_cluster_id()
        directory.change(cluster_id=given, peers={})
    finally:
        directory.close()
    others = "" if cluster_id else f"; give the other nodes' copies --cluster-id {given}"
    return (
        f"{path}: node {settings.node} is of cluster {settings.cluster} {given}, and of "
        f"{before.cluster_id} no more{others}"
    )
