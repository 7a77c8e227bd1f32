"""How far the logs of the other nodes had come, so that an older copy of a directory is noticed.

A directory cannot prove that it is the newest one: an older copy of all of it once was right. Its
node would vote again in terms in which it has voted, and help to elect a leader that lacks what it
has acknowledged. So every node tells its peers the number of the last write of its log that is on
its disk, before anything that rests on it and with every heartbeat (`wire`, HEARTBEAT), and they
remember the highest for the disk id that it has. Hello tells it back: a node with a log that ended
before that stops, says so in `node.json`, and is another disk after the next start (`LogStore`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from warren_raft.runtime.net.handshake import Hello
from warren_raft.storage.log_store import LogStore
from warren_raft.types import NodeId

log = logging.getLogger("warren.raft")

Known = tuple[int, int, int]
"""(disk, number of a write, boot id of the life that told it): zeros: nothing."""
Kept = dict[NodeId, tuple[str, int, int]]
"""The same as `node.json` has it: the disk's id as 16 hexadecimal digits."""


class PeerWriteMarks:
    """The highest write that each peer had on its disk, as far as it told.

    What is on this node's own disk of it is renewed when a connection ends, and at a stop: in a
    life of this node memory suffices.
    Invariant: of one disk the number never falls
    """

    def __init__(
        self, keep: Callable[[Kept], None], disk: int, written: int, boot: int, kept: Kept
    ) -> None:
        """Begin a process (boot) with that disk and a log that ends with that write.

        keep  write the marks to disk, at any later time
        kept  what was written so by an earlier process
        """
        self._keep = keep
        self._began: Known = (disk, written, boot)
        self._kept: dict[NodeId, Known] = {
            n: (int(disk, 16), write, boot) for n, (disk, write, boot) in kept.items()
        }
        self._known = dict(self._kept)

    def heard(self, node: NodeId, disk: int, write: int, boot: int) -> None:
        """That life of that node has that write on that disk."""
        known = self.known(node)
        if known[0] != disk or known[1] < write:
            self._known[node] = (disk, write, boot)

    def judge(self, hello: Hello) -> str | None:
        """Why this node's directory is an older copy, as that peer knows; None: it is not.

        1. This node acknowledges entry 7 to a, its leader, with write 9.  2. Its directory is
        replaced by a copy from before that.  3. a dies. With this node's vote b, which lacks 7,
        would lead. But a, or any other that knows of write 9, says so in its Hello, before
        anything else is said on that connection. What counts is where the log ended when this life
        began: meanwhile it may have met others, and have written as much again.
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
        # Of another life: of this one it may have read more over the connection before.
        if known_disk == hello.disk and known > hello.written and boot != hello.boot_id:
            log.error(
                "the directory of node %s is an older copy: its log had come to write %s, and "
                "ends with write %s",
                hello.node,
                known,
                hello.written,
            )
        return None

    def known(self, node: NodeId) -> Known:
        """What is known of it."""
        return self._known.get(node, (0, 0, 0))

    def keep(self) -> None:
        """A connection has ended, or this life does: what was said last is worth keeping."""
        if self._known != self._kept:
            self._kept = dict(self._known)
            kept = self._kept.items()
            self._keep({n: (f"{disk:016x}", write, boot) for n, (disk, write, boot) in kept})

    def forget(self, node: NodeId) -> None:
        """That node is a peer no longer."""
        self._known.pop(node, None)


def marks_of(logs: LogStore, boot: int) -> PeerWriteMarks:
    """Return the marks for a process that begins with that log; `node.json` keeps them."""
    directory = logs.directory
    identity = directory.identity

    def keep(vouched: Kept) -> None:
        # Without space on the disk the marks in memory serve as well, until a restart.
        logs.background_writer.run(
            lambda: directory.change(vouched=vouched), lambda _: None, lambda error: None
        )

    disk, written = int(identity.disk, 16), logs.wal.synced_batch
    return PeerWriteMarks(keep, disk, written, boot, identity.vouched)
