"""Settings of a node's Raft host, with units and bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warren_raft.config import RaftConfig
from warren_raft.types import NodeId
from warren_raft.versions import OWN, Versions
from warren_wire.tls.contexts import TlsFiles

Address = tuple[str, int]

HEARTBEAT_MS = 100
"""The usual `heartbeat_ms`."""
SUSPECT_AFTER_MS = 2_000
"""The usual `suspect_after_ms`."""
PEER_BACKLOG_BYTES = 256 << 20
"""Much more than what Raft's messages and answers let wait for a peer that reads."""


@dataclass(frozen=True, slots=True)
class HostConfig:
    """The settings of a host.

    node                      this node's name
    cluster                   the cluster's name; a peer of another cluster is refused
    secret                    of all members, at least 8 bytes; proves membership; never sent
    listen                    (address, port) for peers; port 0: any free one
    peers                     name to (address, port) of the other members; empty: this node forms
                              a cluster of its own
    advertise                 (address, port) where the others reach this node; port 0: that of
                              `listen`. None: `listen`; if that is every address, the one they see
    data_dir                  belongs to this node alone
    raft                      the groups' settings
    heartbeat_ms              a heartbeat is sent when nothing else was for that long
    suspect_after_ms          a connected peer that sends nothing for that long is suspected
    disconnect_grace_ms       a peer whose connection broke has that long to reconnect
    reconnect_ms_min, _max    back-off between attempts to connect; refused by the peer: _max
    handshake_ms_max          a connection that is not authenticated by then is closed
    strangers_max             such connections at once, from addresses that are no peer's
    strangers_per_address_max  the same, from one IPv4 address or one /64 network of IPv6
    wal_file_bytes            a WAL file is closed once it is that long
    wal_recycle               WAL files are allocated ahead, and written over when not needed
    memtable_bytes            recent entries kept in memory, over all groups
    snapshot_entries_min      a group that applied fewer since its snapshot gets no new one
    snapshot_bytes_min        the same for the bytes of its entries on disk
    wal_backlog_bytes_max     accepted, not on this node's disk yet; over it no more is applied or
                              accepted from other members until the disk has caught up
    scrub_bytes_per_second    rate at which files are checked for damage; 0: never
    scrub_interval_ms         from the beginning of one such check to the next
    retained_bytes_max        kept below the snapshot for a member that is behind; one that is
                              further behind, or not reachable, is sent the snapshot
    peer_backlog_bytes        unsent bytes per peer; over it the connection is reset
    frame_bytes_max           largest frame accepted from a peer
    connection_buffer_bytes   SO_SNDBUF, SO_RCVBUF of a peer connection
    tls                       certificates for peer connections; None: without TLS
    versions                  those that this program reads and writes; others are for tests
    """

    node: NodeId
    cluster: str
    secret: bytes = field(repr=False)
    listen: Address
    peers: dict[NodeId, Address]
    data_dir: Path
    advertise: Address | None = None
    raft: RaftConfig = field(default_factory=RaftConfig)
    heartbeat_ms: int = HEARTBEAT_MS
    suspect_after_ms: int = SUSPECT_AFTER_MS
    disconnect_grace_ms: int = 150
    reconnect_ms_min: int = 20
    reconnect_ms_max: int = 500
    handshake_ms_max: int = 2000
    strangers_max: int = 256
    strangers_per_address_max: int = 32
    wal_file_bytes: int = 64 << 20
    wal_recycle: bool = True
    memtable_bytes: int = 64 << 20
    snapshot_entries_min: int = 64
    snapshot_bytes_min: int = 64 << 10
    wal_backlog_bytes_max: int = 128 << 20
    scrub_bytes_per_second: int = 0
    scrub_interval_ms: int = 86_400_000
    retained_bytes_max: int = 256 << 20
    peer_backlog_bytes: int = PEER_BACKLOG_BYTES
    frame_bytes_max: int = 256 << 20
    connection_buffer_bytes: int = 4 << 20
    tls: TlsFiles | None = None
    versions: Versions = OWN

    def __post_init__(self) -> None:
        assert 0 < len(self.node.encode()) <= 255, self.node
        assert 0 < len(self.cluster.encode()) <= 255, self.cluster
        assert len(self.secret) >= 8, "the cluster's secret has fewer than 8 bytes"
        assert self.node not in self.peers, self.node
        assert 0 < self.heartbeat_ms < self.suspect_after_ms
        assert 0 < self.reconnect_ms_min <= self.reconnect_ms_max
