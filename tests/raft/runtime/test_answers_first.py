"""A follower writes and answers the entries that it was sent before it applies earlier ones."""

from __future__ import annotations

from pathlib import Path

from tests.raft.runtime.kit import NODES, Cluster, Listing, Recorder
from warren_raft.config import RaftConfig
from warren_raft.machine import Applied, GroupSpec, Meta
from warren_raft.runtime.host import Host
from warren_raft.storage.files import Files

GROUP = 1
COMMANDS = 60
DELAY_MS = 200


class QuickFiles(Files):
    """A disk on which a sync takes no time: batches are written on the loop's thread."""

    def sync_data(self, fd: int) -> None:
        pass


class QuickCluster(Cluster):
    def start(self, node: str) -> Host:
        host = Host(self.config(node), self.loop, Recorder(), files=QuickFiles())
        host.start()
        self.ports[node], self.hosts[node] = host.port, host
        return host


class Watching(Listing):
    """Notes each command of a follower: its index, the last one on disk, whether a write waits.

    And whether an answer to the leader waits: for the disk, in the outbox, or for its socket.
    A busy machine makes any disk slow. Then a thread writes, and a follower applies what is
    committed without its own disk: the index is above the last one on disk, and nothing waits.
    """

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.cluster = cluster
        self.node = node
        self.seen: list[tuple[int, int, bool]] = []
        self.unsent = 0

    def apply(self, meta: Meta, command: bytes, state: list[bytes]) -> Applied:
        host = self.cluster.hosts[self.node]
        group = host._groups[GROUP]
        if group.node.leadership is None:
            here = host._logs.wal.writes_here
            self.seen.append((meta.index, group.node.log.durable, here))
            unsent = sum(host.peer_backlog_bytes(peer) for peer in NODES if peer != self.node)
            self.unsent += bool(group.after_sync or host._ready_loop._outbox or unsent)
        return super().apply(meta, command, state)


def test_a_follower_answers_before_it_applies(tmp_path: Path) -> None:
    cluster = QuickCluster(tmp_path, raft=RaftConfig(commit_delay_ms=DELAY_MS))
    machines = {node: Watching(cluster, node) for node in NODES}
    for node, host in cluster.hosts.items():
        host.start_group(GroupSpec(GROUP, NODES, preferred="a"), machines[node])
    leader = cluster.await_leader(GROUP)
    for number in range(COMMANDS):
        last = leader.propose(GROUP, b"%d" % number)
        cluster.until(lambda last=last: leader.applied_index(GROUP) >= last)
    cluster.until(lambda: all(host.applied_index(GROUP) >= last for host in cluster.hosts.values()))
    seen = [one for machine in machines.values() for one in machine.seen]
    assert len(seen) == 2 * COMMANDS  # the last ones were told by the clock
    assert any(durable > index for index, durable, _ in seen)
    # Only together with a group that this node leads is a command applied before the write.
    assert sum(here for _, _, here in seen) < len(seen) // 10
    assert sum(machine.unsent for machine in machines.values()) < len(seen) // 10
    for host in cluster.hosts.values():
        assert [c for c in host.state(GROUP) if c.isdigit()] == [b"%d" % n for n in range(COMMANDS)]
    cluster.close()
