"""The ready messages of a queue, in the order in which they leave it.

Returned messages leave first, then those of the highest priority. Each priority has a lane, the
`Backlog`: runs from the oldest to the newest. What comes back without having been sent, and in
classic queues with priorities all that comes back, takes its old place in its lane instead, that is
before the lane's backlog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from warren_machines.queue.filters.filters import Filter, FilterSearch
from warren_machines.queue.ready.backlog import Backlog, Fresh
from warren_machines.queue.ready.ranges import LANE_SHIFT, Run, unmarked
from warren_machines.queue.ready.returned_runs import PassedRow, ReturnedRuns
from warren_wire.block.layout import PRIORITY_MAX

PRIORITIES: Final = PRIORITY_MAX + 1
"""Number of priorities, and of lanes."""
_RETURNED: Final = 2 * PRIORITIES


LaneRow: TypeAlias = tuple[int, list[tuple[int, int]]]
"""(lane, what `Backlog.looked` returns)."""


class Found(NamedTuple):
    """Messages that match a filter: of the part and run in which they stand (`Order.find`)."""

    part: int
    place: tuple[int, int]
    run: Run


class Order:
    """Ready messages as runs.

    lanes     one backlog per priority that was used
    returned  came back, in the order they came, ahead of all lanes and regardless of priority;
              in classic queues without priorities in the order of their first arrival
    back      came back to their lanes, ahead of the lane's backlog, by first arrival; the runs are
              marked with their lane
    counts    messages per lane, without those that came back
    count     messages in all, with the returned ones
    added     how often messages became ready, to be compared within one entry

    Invariants: count == sum(counts) + returned_count; bit p of `mask` is set exactly when lane p
    has a run in its backlog; no run, and no lane of `back`, is empty; returned_count counts
    `returned` and `back`
    """

    __slots__ = ("added", "back", "count", "counts", "lanes", "mask", "returned", "returned_count")

    def __init__(self) -> None:
        self.lanes: dict[int, Backlog] = {}
        self.counts = [0] * PRIORITIES
        self.mask = 0
        self.returned = ReturnedRuns()
        self.back: dict[int, ReturnedRuns] = {}
        self.returned_count = 0
        self.count = self.added = 0

    def append(self, priority: int, index: int, first: int, last: int) -> None:
        """Append a run to its lane; a priority above 31 counts as 31."""
        lane = min(priority, PRIORITIES - 1)
        backlog = self.lanes.get(lane)
        if backlog is None:
            backlog = self.lanes[lane] = Backlog()
        backlog.append((index, first, last))
        self.mask |= 1 << lane
        self.counts[lane] += last - first + 1
        self.count += last - first + 1
        self.added += 1

    def give_back(self, run: Run) -> None:
        """Append a run to the returned ones."""
        self._came_back(run)
        self.returned.append(run)

    def give_back_first(self, run: Run) -> None:
        """Insert a run ahead of the returned ones."""
        self._came_back(run)
        self.returned.prepend(run)

    def _came_back(self, run: Run) -> None:
        size = run[2] - run[1] + 1
        self.returned_count += size
        self.count += size
        self.added += 1

    def put_back(self, run: Run) -> None:
        """Insert a run among those that came back to its lane, by its arrival.

        A run without the mark of its lane is inserted among `returned`: its queue has one lane.
        Every run that came back to a lane is older than the lane's backlog: so this is the place
        that the run had in the queue.
        """
        mark = run[4] >> LANE_SHIFT
        returned = self._returned_to(mark - 1) if mark else self.returned
        self._came_back(run)
        returned.put_back(run)

    def _returned_to(self, lane: int) -> ReturnedRuns:
        """Return the runs that came back to a lane, made if there are none."""
        runs = self.back.get(lane)
        if runs is None:
            runs = self.back[lane] = ReturnedRuns()
        return runs

    def _back_first(self) -> int:
        """Return the lane of `back` that leaves next; -1: a backlog does, or there is nothing."""
        lane = max(self.back)
        return lane if lane >= self.mask.bit_length() - 1 else -1

    def head(self) -> Run | None:
        """Return the run that leaves next."""
        if self.returned.leaves:
            return self.returned.head()
        if self.back and (lane := self._back_first()) >= 0:
            return self.back[lane].head()
        if not self.mask:
            return None
        return (*self.lanes[self.mask.bit_length() - 1].head(), 0, 0)

    def take(self, count: int, marked: bool = False) -> Run:
        """Take the first `count` messages of the head's run, or all of it when it has fewer.

        marked  with the mark of the lane that the run is to come back to
        """
        if self.returned.leaves:
            return self._take_returned(self.returned, count)
        if self.back and (lane := self._back_first()) >= 0:
            return self._take_back(lane, count)
        lane = self.mask.bit_length() - 1
        return (*self._cut(lane, count), 0, (lane + 1) << LANE_SHIFT if marked else 0)

    def take_whole(
        self, count: int, size_bytes: int, size_of: Callable[[int], int], marked: bool
    ) -> tuple[list[Run], int]:
        """Take runs from the head as `take` would one by one, as long as each fits as a whole.

        It ends before a run that came back, one that does not fit, and one of unknown size.

        count, size_bytes  the most messages and bytes of all runs together
        size_of            returns the size of each message of a block; 0: they differ, or are empty
        returns            the runs, and their bytes
        """
        if self.returned.leaves or (self.back and self._back_first() >= 0) or not self.mask:
            return [], 0
        lane = self.mask.bit_length() - 1
        backlog = self.lanes[lane]
        mark = (lane + 1) << LANE_SHIFT if marked else 0
        runs: list[Run] = []
        left, left_bytes = count, size_bytes
        while backlog:
            index, first, last = backlog.head()
            messages = last - first + 1
            size = size_of(index) * messages
            if not size or messages > left or size > left_bytes:
                break
            backlog.popleft()
            runs.append((index, first, last, 0, mark))
            left -= messages
            left_bytes -= size
        if not backlog:
            self.mask &= ~(1 << lane)
        self.counts[lane] -= count - left
        self.count -= count - left
        return runs, size_bytes - left_bytes

    def parts(self) -> list[int]:
        """Return the parts with messages in the order of their leaving.

        The part of `returned` is the highest; a lane has 2 × lane for its backlog, and 2 × lane + 1
        for what came back to it.
        """
        found = [2 * lane for lane in range(PRIORITIES) if self.mask >> lane & 1]
        found += [2 * lane + 1 for lane in self.back]
        if self.returned:
            found.append(_RETURNED)
        return sorted(found, reverse=True)

    def head_of(self, part: int) -> Run | None:
        """Return the first run of a part; None: the part is empty."""
        lane, came_back = divmod(part, 2)
        if part == _RETURNED or came_back:
            runs = self.returned if part == _RETURNED else self.back.get(lane)
            return runs.head() if runs else None
        backlog = self.lanes.get(lane)
        return (*backlog.head(), 0, 0) if backlog else None

    def take_of(self, part: int, count: int) -> Run:
        """Take messages from the first run of a part, which must not be empty."""
        if part == _RETURNED:
            return self._take_returned(self.returned, count)
        lane, came_back = divmod(part, 2)
        return self._take_back(lane, count) if came_back else (*self._cut(lane, count), 0, 0)

    def _take_back(self, lane: int, count: int) -> Run:
        """Take messages from the first run that came back to a lane."""
        runs = self.back[lane]
        run = self._take_returned(runs, count)
        if not runs:
            del self.back[lane]
        return run

    def _take_returned(self, runs: ReturnedRuns, count: int) -> Run:
        run = runs.take(count)
        size = run[2] - run[1] + 1
        self.returned_count -= size
        self.count -= size
        return run

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

    def find(self, wanted: Filter, search: FilterSearch) -> Found | None:
        """Return the first messages that match a filter, for `take_found`.

        None where a message that has not been judged is before them. One that came after the
        filter holds up its own lane only: otherwise messages of higher priority, judged one round
        after they came, would keep those of lower priority back for as long as any arrive. None
        also where no step of the search is left: another entry continues it.
        """
        for part in self.parts():
            lane, came_back = divmod(part, 2)
            found: tuple[tuple[int, int], tuple[int, ...]] | int | None
            if part == _RETURNED or came_back:
                found = self._part_returned(part).find(wanted, search)
            else:
                found = self.lanes[lane].find(wanted, search)
            if isinstance(found, int):
                if found <= wanted.goal:
                    return None
            elif found is not None:
                place, (index, first, last, *counts) = found
                failed, acquired = counts or (0, 0)
                return Found(part, place, (index, first, last, failed, acquired))
            elif wanted.id in search.unfinished:
                return None
        return None

    def _part_returned(self, part: int) -> ReturnedRuns:
        return self.returned if part == _RETURNED else self.back[part // 2]

    def take_found(self, found: Found, count: int, marked: bool = False) -> Run:
        """Take the first `count` messages of what `find` returned just now; see `take`."""
        index, first, last, failed, acquired = found.run
        last = min(last, first + count - 1)
        size = last - first + 1
        lane, came_back = divmod(found.part, 2)
        if found.part == _RETURNED or came_back:
            runs = self._part_returned(found.part)
            runs.cut(found.place, first, last)
            if came_back and not runs:
                del self.back[lane]
            self.returned_count -= size
        else:
            backlog = self.lanes[lane]
            backlog.cut(found.place, first, last)
            if not backlog:
                self.mask &= ~(1 << lane)
            self.counts[lane] -= size
            acquired = (lane + 1) << LANE_SHIFT if marked else 0
        self.count -= size
        return index, first, last, failed, acquired

    def forget_filter(self, number: int) -> None:
        """Drop what is known for a filter that is not used any more."""
        for backlog in self.lanes.values():
            backlog.forget_filter(number)
        for runs in (self.returned, *self.back.values()):
            runs.forget_filter(number)

    def forget_listed(self, number: int) -> None:
        """Forget a filter that was used in this entry alone: the order is as without it."""
        for backlog in self.lanes.values():
            backlog.forget_filter(number)
        for runs in (self.returned, *self.back.values()):
            runs.forget_listed(number)

    def cut_tail(self, lane: int, index: int, count: int) -> list[Fresh]:
        """Remove up to `count` messages of block `index` from the end of a lane."""
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
        """Remove everything; return it in the order in which it would have left."""
        gone = Order()
        gone.lanes, gone.returned, gone.back = self.lanes, self.returned, self.back
        self.lanes, self.returned, self.back = {}, ReturnedRuns(), {}
        self.counts = [0] * PRIORITIES
        self.mask = self.returned_count = self.count = 0
        return iter(gone)

    def __iter__(self) -> Iterator[Run]:
        """Yield all runs in the order in which they would leave."""
        yield from self.returned
        for lane in sorted(self.lanes.keys() | self.back.keys(), reverse=True):
            yield from map(unmarked, self.back.get(lane, ()))
            for run in self.lanes.get(lane, ()):
                yield (*run, 0, 0)

    def runs_after(
        self, part: int, seek: tuple[int, ...] | None, own: bool
    ) -> Iterator[tuple[tuple[int, int, int], Run]]:
        """Yield (chunk, 0, 0) or (leaf, its place, row) and the runs of a part behind a message.

        seek  such a place, log index, ordinal; None: all
        own   whether chunks and leaves have these numbers here
        """
        number, leaf, row, index, ordinal = seek or (-1, 0, 0, -1, -1)
        if part == _RETURNED or part % 2:
            place = (number, leaf, row)
            yield from self._part_returned(part).runs_after(place, index, ordinal, own)
        else:
            backlog = self.lanes[part // 2]
            for chunk, run in backlog.runs_after(number, index, ordinal, own or seek is None):
                yield (chunk, 0, 0), (*run, 0, 0)

    def all_returned(self) -> Iterator[Run]:
        """Yield the runs of `returned` and `back`, marked, in the order of their leaving."""
        yield from self.returned
        for lane in sorted(self.back, reverse=True):
            yield from self.back[lane]

    def dump_returned(self) -> tuple[list[bytes], list[tuple[int, list[bytes]]]]:
        """Return the packed leaves of `returned`, and of `back` by lane, ascending."""
        back = [(lane, self.back[lane].dump()) for lane in sorted(self.back)]
        return self.returned.dump(), back

    def by_priority(self) -> tuple[tuple[int, int], ...]:
        """Return (priority, ready messages) of the lanes that have any, ascending."""
        return tuple((lane, count) for lane, count in enumerate(self.counts) if count)

    def dump(self) -> list[tuple[int, int, list[bytes]]]:
        """Return (priority, messages, chunks) of the lanes that have any, ascending."""
        return [
            (lane, self.counts[lane], self.lanes[lane].chunks())
            for lane in sorted(self.lanes)
            if self.counts[lane]
        ]

    def looked(self) -> tuple[list[LaneRow], list[tuple[int, list[PassedRow]]]]:
        """Return how far filters have looked: by lane, and by part of what came back."""
        lanes = [(lane, self.lanes[lane].looked()) for lane in sorted(self.lanes)]
        parts = {2 * lane + 1: runs for lane, runs in self.back.items()} | {
            _RETURNED: self.returned
        }
        passed = [(part, parts[part].looked()) for part in sorted(parts)]
        return [row for row in lanes if row[1]], [each for each in passed if each[1]]

    def load_looked(
        self, lanes: Iterable[LaneRow], passed: Iterable[tuple[int, list[PassedRow]]]
    ) -> None:
        """Load what `looked` returned, after the runs."""
        for lane, rows in lanes:
            self.lanes.setdefault(lane, Backlog()).load_looked(rows)
        for part, each in passed:
            self._part_returned(part).load_looked(each)

    def load_returned(
        self, count: int, returned: Iterable[bytes], back: Iterable[tuple[int, Iterable[bytes]]]
    ) -> None:
        """Load what `dump_returned` returned, which are `count` messages, into an empty object."""
        self.returned = ReturnedRuns(returned)
        self.back = {lane: ReturnedRuns(leaves) for lane, leaves in back}
        self.returned_count = count
        self.count += count

    def load(self, lanes: Iterable[tuple[int, int, Iterable[bytes]]]) -> None:
        """Load what `dump` returned into an empty object."""
        for lane, count, chunks in lanes:
            assert 0 <= lane < PRIORITIES, lane  # of a damaged state: `mask` would fill the memory
            self.lanes[lane] = Backlog(chunks)
            self.mask |= 1 << lane
            self.counts[lane] = count
            self.count += count
