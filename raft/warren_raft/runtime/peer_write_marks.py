"""The log positions of the other nodes, with which an older copy of a directory is detected.

A directory cannot prove that it is the newest one: an older copy of all of it was valid once. Its
node would vote again in terms in which it has voted, and help to elect a leader that lacks what it
has acknowledged. So every node sends its peers the number of the last write of its log that is on
its disk, before any message that depends on it and with every heartbeat (`codec`, HEARTBEAT), and
they remember the highest one per disk id. Hello returns it: a node with a log that ended before
that stops, records it in `node.json`, and has a new disk id after the next start (`LogStore`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from warren_raft.runtime.net.handshake import Hello
from warren_raft.storage.log_store import LogStore
from warren_raft.types import NodeId

log = logging.getLogger("warren.raft")

Known = tuple[int, int, int]
"""(disk, number of a write, boot id of the process that sent it); zeros: nothing."""
Kept = dict[NodeId, tuple[str, int, int]]
"""The same as stored in `node.json`: the disk's id as 16 hexadecimal digits."""


class PeerWriteMarks:
    """The highest write that each peer has reported to be on its disk.

    The copy on this node's disk is updated when a connection ends, and at a stop: while the process
    runs, memory suffices.
    Invariant: the number of one disk never decreases
    """

    def __init__(
        self, keep: Callable[[Kept], None], disk: int, written: int, boot: int, kept: Kept
    ) -> None:
        """Start a process (boot) with that disk and a log that ends with that write.

        keep  writes the marks to disk, at any later time
        kept  the marks that an earlier process wrote
        """
        self._keep = keep
        self._began: Known = (disk, written, boot)
        self._kept: dict[NodeId, Known] = {
            n: (int(disk, 16), write, boot) for n, (disk, write, boot) in kept.items()
        }
        self._known = dict(self._kept)

    def heard(self, node: NodeId, disk: int, write: int, boot: int) -> None:
        """Record that the process `boot` of that node has that write on that disk."""
        known = self._known.get(node)
        if known is None or known[0] != disk or known[1] < write:
            self._known[node] = (disk, write, boot)

    def judge(self, hello: Hello) -> str | None:
        """Return why that peer's Hello shows this directory to be an older copy; None: it is not.

        1. This node acknowledges entry 7 to a, its leader, with write 9.  2. Its directory is
        replaced by a copy from before that.  3. a crashes. With this node's vote b, which lacks 7,
        would lead. But a, or any other node that knows of write 9, says so in its Hello, before any
        other message on that connection. Compared is where the log ended when this process started:
        since then it may have reached other nodes, and have written as much again.
        Replayed by tests/raft/runtime/test_outdated.py
        """
        known_disk, known, boot = hello.vouched
        disk, began, own_boot = self._began
        if known_disk == disk and known > began and boot != own_boot:
            return (
                f"it is an older copy: node {hello.node} has known its log up to write {known}, "
                f"and it ended with write {began}"
            )
        known_disk, known, boot = self.known(hello.node)
        # Of another process: this one may have sent more over the connection before.
        if known_disk == hello.disk and known > hello.written and boot != hello.boot_id:
            log.error(
                "the directory of node %s is an older copy: its log had reached write %s, and "
                "ends with write %s",
                hello.node,
                known,
                hello.written,
            )
        return None

    def known(self, node: NodeId) -> Known:
        """Return what is known of that node's log."""
        return self._known.get(node, (0, 0, 0))

    def keep(self) -> None:
        """Write the marks to disk: a connection has ended, or the process stops."""
        if self._known != self._kept:
            self._kept = dict(self._known)
            kept = self._kept.items()
            self._keep({n: (f"{disk:016x}", write, boot) for n, (disk, write, boot) in kept})

    def forget(self, node: NodeId) -> None:
        """Forget a node that is no longer a peer."""
        self._known.pop(node, None)


def marks_of(logs: LogStore, boot: int) -> PeerWriteMarks:
    """Return the marks for a process that starts with that log; `node.json` keeps them."""
    directory = logs.directory
    identity = directory.identity

    def keep(vouched: Kept) -> None:
        # Without disk space the marks in memory suffice until a restart.
        logs.background_writer.run(
            lambda: directory.change(vouched=vouched), lambda _: None, lambda error: None
        )

    disk, written = int(identity.disk, 16), logs.wal.synced_batch
    return PeerWriteMarks(keep, disk, written, boot, identity.vouched)
