"""The copies beyond a majority: no commit waits for them, so small appends to them gather."""

from __future__ import annotations

from collections.abc import Sequence

from warren_raft.config import RaftConfig
from warren_raft.core.log import LogView
from warren_raft.core.progress import Progress
from warren_raft.types import Index

GATHER_BYTES_MAX = 16 << 10
"""With more bytes of entries nothing gathers: then a message costs more than a turn of a node."""


class LastCopies:
    """The followers to which a leader sends small appends later than to the others.

    A commit needs a majority. Of three members the leader's copy and one follower's are one, and
    the answer of the second follower changes nothing, but costs as much: a turn of it, a sync, and
    a turn of the leader. So what is small is sent at once to as many followers as a majority
    needs, and to the others later, several entries in one message: when the oldest has waited for
    `commit_delay_ms`, when a commit has waited for `last_copy_delay_ms`, or when it is not small
    any more.

    What is acknowledged, and when, is as before: an entry is committed when a majority has it on
    disk, whichever these are (`leader.advance_commit` knows nothing of this class). A follower of
    the majority that does not answer delays a commit by `last_copy_delay_ms`, once: the follower
    that answers in its stead takes its place.

    followers   those that are sent small appends later; the others of `Leadership.counting` and
                the leader are a majority, or there are none here
    due_ms      when they are sent what gathers; None: nothing does
    began_ms    since when something gathers
    open        an entry that is not committed, as far as is known; open_ms: since when it waits;
                None: everything is committed
    size_bytes  of the entries that gather; seen: the last one that was counted
    """

    __slots__ = ("began_ms", "due_ms", "followers", "open", "open_ms", "seen", "size_bytes")

    def __init__(self, last: Index) -> None:
        self.followers: tuple[Progress, ...] = ()
        self.due_ms: int | None = None
        self.began_ms = 0
        self.open_ms: int | None = None
        self.open: Index = last
        self.size_bytes = 0
        self.seen: Index = last

    def choose(self, counting: Sequence[Progress], needed: int, group: int) -> None:
        """Choose all but `needed` of the voters that count; another one for another group."""
        if len(counting) <= needed:
            self.followers, self.due_ms = (), None
            return
        start = group % len(counting)
        self.followers = (*counting[start:], *counting[:start])[needed:]

    def overtaken(self, counting: Sequence[Progress], quick: Progress) -> None:
        """Have one of the followers take the place of one that answered after it.

        1. The follower that the commit waits for hangs.  2. What gathers is sent to the other one
        when it is due, and its answer commits.  3. If the first kept its place, every commit would
        wait as long.
        """
        slow = min(
            [each for each in counting if each not in self.followers],
            key=lambda each: each.match,
            default=quick,
        )
        if slow.match < quick.match:
            self.followers = tuple([slow if each is quick else each for each in self.followers])

    def may_wait(self, log: LogView, counting: Sequence[Progress], now_ms: int) -> bool:
        """Return whether these followers need not be sent yet what is new in the log."""
        if log.last > self.seen:
            first = max(self.seen + 1 - log.tail_first, 0)
            self.size_bytes += sum([len(entry.data) for entry in log.tail[first:]])
            self.seen = log.last
        if self.size_bytes > GATHER_BYTES_MAX or (
            self.due_ms is not None and now_ms >= self.due_ms
        ):
            return False
        for each in counting:  # the others are a majority only while they are sent what is new
            if (each.paused or each.probing or each.snapshotting) and each not in self.followers:
                return False
        return True

    def wait(self, waits: bool, log: LogView, config: RaftConfig, now_ms: int) -> None:
        """Take note whether something gathers, and find when it is due."""
        if log.committed == log.last:
            self.open_ms = None
        elif self.open_ms is None or log.committed >= self.open:
            self.open_ms, self.open = now_ms, log.last
        if not waits:
            self.due_ms, self.size_bytes = None, 0
            return
        if self.due_ms is None:
            self.began_ms = now_ms
        delay_ms = config.last_copy_delay_ms
        self.due_ms = self.began_ms + max(delay_ms, config.commit_delay_ms)
        if self.open_ms is not None:
            self.due_ms = min(self.due_ms, self.open_ms + delay_ms)

    def check(self, counting: Sequence[Progress], needed: int) -> None:
        """Assert the invariants."""
        assert all(each in counting for each in self.followers), self.followers
        assert len(self.followers) == max(0, len(counting) - needed), (len(counting), needed)
        assert self.due_ms is None or self.followers, self.due_ms
