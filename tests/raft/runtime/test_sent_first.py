"""A leader's appends leave before it has written the entries to its own log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.raft.runtime.kit import NODES, Cluster, Listing
from warren_raft.machine import GroupSpec
from warren_raft.messages import AnyRaftMessage, Append
from warren_raft.runtime.host import Host
from warren_raft.types import NodeId

GROUP = 1
COMMANDS = 20


class Watched:
    """Takes the place of a host's way to its peers, and looks at the host after each append."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.send = host._transport.send_raft
        self.unsent: list[int] = []
        self.stored: list[bool] = []
        host._ready_loop._send_raft = self

    def __call__(self, node: NodeId, messages: Sequence[AnyRaftMessage], now: bool) -> bool:
        crowded = self.send(node, messages, now)
        for message in messages:
            if isinstance(message, Append) and message.group == GROUP and message.entries:
                self.unsent.append(self.host.peer_backlog_bytes(node))
                last = message.prev_index + len(message.entries)
                self.stored.append(self.host._groups[GROUP].store.log.last >= last)
        return crowded


def test_appends_leave_before_the_leader_writes(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for host in cluster.hosts.values():
        host.start_group(GroupSpec(GROUP, NODES, preferred="a"), Listing())
    leader = cluster.await_leader(GROUP)
    watched = Watched(leader)
    for number in range(COMMANDS):
        last = leader.propose(GROUP, b"%d" % number)
        cluster.until(lambda last=last: leader.applied_index(GROUP) >= last)
    # The last copies are sent later, and where entries are applied in the same turn all of it
    # leaves at the turn's end; a new leader of another group may have that, too.
    assert watched.stored.count(False) >= COMMANDS
    first = [
        unsent for unsent, stored in zip(watched.unsent, watched.stored, strict=True) if not stored
    ]
    assert first.count(0) >= COMMANDS, first
    for host in cluster.hosts.values():
        cluster.until(lambda host=host: host.applied_index(GROUP) >= last)
        assert host.state(GROUP)[-COMMANDS:] == [b"%d" % n for n in range(COMMANDS)]
    cluster.close()
