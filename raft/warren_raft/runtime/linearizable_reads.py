"""The reads of one group that wait until this member's state is current (Raft thesis, 6.4)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from warren_raft.core.ready import ReadState
from warren_raft.types import Index

ReadDone = Callable[[bool], None]
"""Called once. True: the applied state is current; False: it cannot be known, ask otherwise."""


class LinearizableReads:
    """Requests by their context, from the question to the moment when enough is applied.

    asked      requests without an index: the leader has not confirmed their round
    confirmed  requests with an index that is not applied yet
    waiting    (index, context), a heap
    Invariant: a pending request is either in `asked`, or in `confirmed` and in `waiting`; one that
    was given up may stay in `waiting` until its index is applied.
    """

    __slots__ = ("_asked", "_confirmed", "_waiting")

    def __init__(self) -> None:
        self._asked: dict[int, ReadDone] = {}
        self._confirmed: dict[int, ReadDone] = {}
        self._waiting: list[tuple[Index, int]] = []

    def __len__(self) -> int:
        return len(self._asked) + len(self._confirmed)

    def ask(self, context: int, done: ReadDone) -> None:
        """Add a request; contexts are never used twice."""
        assert context not in self._asked, context
        self._asked[context] = done

    def confirmed(self, reads: Sequence[ReadState]) -> None:
        """Take the answers of a Ready; those given up are ignored."""
        for read in reads:
            done = self._asked.pop(read.context, None)
            if done is None:
                continue
            if read.index is None:
                done(False)
            else:
                self._confirmed[read.context] = done
                heapq.heappush(self._waiting, (read.index, read.context))

    def applied(self, index: Index) -> None:
        """Answer the confirmed requests for which that much is enough."""
        while self._waiting and self._waiting[0][0] <= index:
            done = self._confirmed.pop(heapq.heappop(self._waiting)[1], None)
            if done is not None:
                done(True)

    def give_up(self, context: int) -> None:
        """Answer a request that took too long; unknown ones were answered already."""
        done = self._asked.pop(context, None) or self._confirmed.pop(context, None)
        if done is not None:
            done(False)

    def end(self) -> None:
        """Answer everything: the group is gone."""
        for context in [*self._asked, *self._confirmed]:
            self.give_up(context)
