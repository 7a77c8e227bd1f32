"""The order in which messages leave: returned ones first, then the highest priority."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from warren_broker.queue.backlog import Backlog, Fresh
from warren_broker.queue.ranges import Run

PRIORITIES: Final = 32


class Order:
    """Ready messages as runs.

    lanes     one backlog per priority that was used
    returned  came back, in the order they came, ahead of all lanes and regardless of priority;
              classic queues without priorities have them in the order they arrived at first
    counts    messages per lane
    count     messages in all, with the returned ones

    Invariants: count == sum(counts) + returned_count; bit p of `mask` is set exactly when lane p
    has a run; no run is empty
    """

    __slots__ = ("count", "counts", "lanes", "mask", "returned", "returned_count")

    def __init__(self) -> None:
        self.lanes: dict[int, Backlog] = {}
        self.counts = [0] * PRIORITIES
        self.mask = 0
        self.returned: deque[Run] = deque()
        self.returned_count = 0
        self.count = 0

    def append(self, priority: int, index: int, first: int, last: int) -> None:
        """A run joins the end of its lane; a priority above 31 counts as 31."""
        lane = min(priority, PRIORITIES - 1)
        backlog = self.lanes.get(lane)
        if backlog is None:
            backlog = self.lanes[lane] = Backlog()
        backlog.append((index, first, last))
        self.mask |= 1 << lane
        self.counts[lane] += last - first + 1
        self.count += last - first + 1

    def give_back(self, run: Run) -> None:
        """A run joins the end of the returned ones."""
        index, first, last, failed, acquired = run
        self.returned_count += last - first + 1
        self.count += last - first + 1
        if self.returned:
            before = self.returned[-1]
            if before[0] == index and before[2] + 1 == first and before[3:] == (failed, acquired):
                self.returned[-1] = (index, before[1], last, failed, acquired)
                return
        self.returned.append(run)

    def put_back(self, run: Run) -> None:
        """A run returns to its place among the returned ones, by arrival.

        Where there is one lane, whatever came back is older than what is in it: so this is the
        place that the run had in the queue.
        """
        returned = self.returned
        if not returned or returned[-1][:2] < run[:2]:
            self.give_back(run)
            return
        self.returned_count += run[2] - run[1] + 1
        self.count += run[2] - run[1] + 1
        returned.insert(bisect_left(returned, run[:2]), run)

    def head(self) -> Run | None:
        """The run that leaves next."""
        if self.returned:
            return self.returned[0]
        if not self.mask:
            return None
        return (*self.lanes[self.mask.bit_length() - 1].head(), 0, 0)

    def take(self, count: int) -> Run:
        """The first `count` messages of the head's run, or all of it when it has fewer."""
        if self.returned:
            run = self.returned[0]
            index, first, last, failed, acquired = run
            size = last - first + 1
            if size <= count:
                self.returned.popleft()
            else:
                self.returned[0] = (index, first + count, last, failed, acquired)
                run = (index, first, first + count - 1, failed, acquired)
                size = count
            self.returned_count -= size
            self.count -= size
            return run
        lane = self.mask.bit_length() - 1
        return (*self._cut(lane, count), 0, 0)

    def take_lane(self, lane: int, count: int) -> Fresh:
        """The same from one lane, which must not be empty."""
        return self._cut(lane, count)

    def _cut(self, lane: int, count: int) -> Fresh:
        backlog = self.lanes[lane]
        run = backlog.head()
        index, first, last = run
        size = last - first + 1
        if size <= count:
            backlog.popleft()
            if not backlog:
                self.mask &= ~(1 << lane)
        else:
            backlog.shorten_head(first + count)
            run = (index, first, first + count - 1)
            size = count
        self.counts[lane] -= size
        self.count -= size
        return run

    def cut_tail(self, lane: int, index: int, count: int) -> list[Fresh]:
        """Up to `count` messages off the end of a lane, as far as they are of block `index`."""
        backlog = self.lanes[lane]
        taken: list[Fresh] = []
        while count and backlog and backlog.tail()[0] == index:
            _, first, last = backlog.tail()
            size = min(last - first + 1, count)
            if first <= last - size:
                backlog.shorten_tail(last - size)
            else:
                backlog.pop()
            taken.append((index, last - size + 1, last))
            count -= size
            self.counts[lane] -= size
            self.count -= size
        if not backlog:
            self.mask &= ~(1 << lane)
        return taken

    def clear(self) -> Iterator[Run]:
        """Empty it; what was there, in the order it would have left."""
        gone = Order()
        gone.lanes, gone.returned = self.lanes, self.returned
        self.lanes, self.returned = {}, deque()
        self.counts = [0] * PRIORITIES
        self.mask = self.returned_count = self.count = 0
        return iter(gone)

    def __iter__(self) -> Iterator[Run]:
        """All runs in the order they would leave."""
        yield from self.returned
        for lane in sorted(self.lanes, reverse=True):
            for run in self.lanes[lane]:
                yield (*run, 0, 0)

    def by_priority(self) -> tuple[tuple[int, int], ...]:
        """(priority, ready messages) of the lanes that have any, ascending."""
        return tuple((lane, count) for lane, count in enumerate(self.counts) if count)

    def dump(self) -> list[tuple[int, int, list[bytes]]]:
        """(priority, messages, chunks) of the lanes that have any, ascending."""
        return [
            (lane, self.counts[lane], self.lanes[lane].chunks())
            for lane in sorted(self.lanes)
            if self.counts[lane]
        ]

    def load(
        self, returned: Iterable[Run], lanes: Iterable[tuple[int, int, Iterable[bytes]]]
    ) -> None:
        """Fill an empty one with what `dump` gave."""
        for run in returned:
            index, first, last, failed, acquired = run
            self.returned.append((index, first, last, failed, acquired))
            self.returned_count += last - first + 1
            self.count += last - first + 1
        for lane, count, chunks in lanes:
            self.lanes[lane] = Backlog(chunks)
            self.mask |= 1 << lane
            self.counts[lane] = count
            self.count += count
