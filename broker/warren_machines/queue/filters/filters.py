"""The filters of a queue's consumers, and what they say of the messages.

A filter is opaque here: the leader evaluates it and tells the machine by `Judge`, block by block in
the order of the log. A block that has left the queue is forgotten (`Filter.sweep`); what is said of
a message never changes, wherever the message is: ready, held, delayed, staged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from warren_machines.queue.filters.filter_commands import Judged
from warren_machines.queue.ready.block_index import BlockIndex
from warren_raft.index_set import PAGE, PAGE_BITS

FILTERS_MAX: Final = 64
"""Different filters of a queue's consumers: each message is judged by each of them."""
SEARCH_STEPS: Final = 16
"""Steps of all searches of one entry: chunks and leaves of ready messages that a filter comes to,
each a millisecond or so. Otherwise an entry by which many consumers get credit would look for all
of their filters through the whole queue."""
WAKES_MAX: Final = 16
"""How often one entry looks for a match of each filter with consumers that wait, but for its end: a
client gets and returns messages in turn, or publishes a block of priorities in turn."""
_SWEEP_MIN: Final = 64
_WITHIN: Final = PAGE - 1
PageRow: TypeAlias = tuple[int, bytes, list[tuple[int, bytes]]]
"""(page, bits of the blocks that match as a whole, (index, bits of messages) of the others)."""


class _Page:
    """Matches in PAGE neighbouring entries; whole: bit i for the entry with offset i."""

    __slots__ = ("parts", "whole")

    def __init__(self) -> None:
        self.whole = 0
        self.parts: dict[int, int] = {}


class Filter:
    """A filter, for all consumers of a queue that have given the same one.

    id      its number in the queue, never used again
    text    what tells it from others; the machine does not look into it
    judged  every block up to this log index has been judged
    goal    the newest block when the filter came: up to there messages were waiting, and none of
            those is overtaken by one that was judged before it
    users   consumers that have it
    parked  (uplink, consumer) of those that could be served and found nothing, in turn

    Invariants: a part has a bit set, and its block none in `whole`; `_size` counts pages and parts
    """

    __slots__ = ("_pages", "_size", "_swept", "goal", "id", "judged", "parked", "text", "users")

    def __init__(self, number: int, text: bytes, judged: int, goal: int) -> None:
        self.id = number
        self.text = text
        self.judged = judged
        self.goal = goal
        self.users = 0
        self.parked: dict[tuple[int, int], None] = {}
        self._pages: dict[int, _Page] = {}
        self._size = self._swept = 0

    # ------------------------------------------------------------ questions

    def matching(self, index: int, first: int, last: int) -> tuple[int, int] | None:
        """Return the first run of matches among messages first … last of a block."""
        page = self._pages.get(index >> PAGE_BITS)
        if page is None:
            return None
        if page.whole >> (index & _WITHIN) & 1:
            return first, last
        bits = page.parts.get(index, 0) >> first
        if not bits:
            return None
        skipped = (bits & -bits).bit_length() - 1
        begin = first + skipped
        if begin > last:
            return None
        bits >>= skipped
        length = (~bits & (bits + 1)).bit_length() - 1
        return begin, min(last, begin + length - 1)

    def without_matches(self, page: int) -> bool:
        """Return whether nothing in a page of the log matches, nor will."""
        return page not in self._pages and ((page + 1) << PAGE_BITS) - 1 <= self.judged

    # ------------------------------------------------------------ changes

    def learn(self, said: Judged, contents: BlockIndex) -> None:
        """Take what the leader has found, unless that was known or something before it is not."""
        if said.after != self.judged or said.to <= said.after:
            return
        self.judged = said.to
        for index in said.whole:
            if contents.has(index):
                self._page(index).whole |= 1 << (index & _WITHIN)
        for index, data in said.parts:
            bits = int.from_bytes(data, "little")
            if bits and contents.has(index):
                parts = self._page(index).parts
                self._size += index not in parts
                parts[index] = bits
        if self._size > 2 * self._swept + _SWEEP_MIN:
            self.sweep(contents)
            self._swept = self._size

    def _page(self, index: int) -> _Page:
        page = self._pages.get(index >> PAGE_BITS)
        if page is None:
            page = self._pages[index >> PAGE_BITS] = _Page()
            self._size += 1
        return page

    def sweep(self, contents: BlockIndex) -> None:
        """Forget the blocks that have left the queue; not observable but in memory."""
        for number in list(self._pages):
            page, live = self._pages[number], contents.in_page(number)
            page.whole &= _bits(live)
            if page.parts:
                page.parts = {index: page.parts[index] for index in live if index in page.parts}
            if not page.whole and not page.parts:
                del self._pages[number]
        self._size = self._counted()

    def _counted(self) -> int:
        return len(self._pages) + sum(len(page.parts) for page in self._pages.values())

    # ------------------------------------------------------------ snapshots

    def dump(self, contents: BlockIndex) -> list[PageRow]:
        """Return the matches among blocks that are in the queue; equal ones give equal rows."""
        rows: list[PageRow] = []
        for number in sorted(self._pages):
            page, live = self._pages[number], contents.in_page(number)
            whole = page.whole & _bits(live)
            parts = [(index, _bytes(page.parts[index])) for index in live if index in page.parts]
            if whole or parts:
                rows.append((number, _bytes(whole), parts))
        return rows

    def load(self, rows: Iterable[PageRow]) -> None:
        """Load what `dump` returned."""
        for number, whole, parts in rows:
            page = self._pages[number] = _Page()
            page.whole = int.from_bytes(whole, "little")
            page.parts = {index: int.from_bytes(bits, "little") for index, bits in parts}
        self._size = self._counted()

    def check(self) -> None:
        """Assert the invariants."""
        assert self._size == self._counted(), (self.id, self._size)
        for number, page in self._pages.items():
            for index, bits in page.parts.items():
                assert bits and index >> PAGE_BITS == number, (self.id, index)
                assert not page.whole >> (index & _WITHIN) & 1, (self.id, index)


def _bits(live: Sequence[int]) -> int:
    found = 0
    for index in live:
        found |= 1 << (index & _WITHIN)
    return found


def _bytes(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


class FilterSearch:
    """What the searches of one entry may still look at, the same on all members.

    entry       its index
    left        steps
    unfinished  numbers of filters of which a search found no step left
    woken       `Order.added` when parked consumers were woken last; -1: never
    wakes       how often they may be before the entry's end, for commands of which each is applied
                as if it had an entry of its own
    """

    __slots__ = ("entry", "left", "unfinished", "wakes", "woken")

    def __init__(self, entry: int, left: int = 0) -> None:
        self.entry = entry
        self.left = left
        self.unfinished: set[int] = set()
        self.woken = -1
        self.wakes = WAKES_MAX

    def take(self, wanted: Filter) -> bool:
        """Count a step of a filter's search; return whether it may be taken."""
        if self.left <= 0:
            self.unfinished.add(wanted.id)
            return False
        self.left -= 1
        return True


class Filters:
    """All filters of a queue.

    newest   no block that is to be judged is newer; kept while there are filters
    next_id  of the next filter
    search   of the newest entry with a search

    Invariants: every filter has users; there are at most FILTERS_MAX
    """

    __slots__ = ("_by_text", "by_id", "newest", "next_id", "search")

    def __init__(self) -> None:
        self.by_id: dict[int, Filter] = {}
        self._by_text: dict[bytes, Filter] = {}
        self.newest = 0
        self.next_id = 1
        self.search = FilterSearch(0)

    def search_of(self, entry: int) -> FilterSearch:
        """Return what the searches of an entry share."""
        if self.search.entry != entry:
            self.search = FilterSearch(entry, SEARCH_STEPS)
        return self.search

    def __bool__(self) -> bool:
        return bool(self.by_id)

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Filter]:
        """Yield them, oldest first."""
        return iter(self.by_id.values())

    def get(self, number: int) -> Filter | None:
        """Return the filter with that number."""
        return self.by_id.get(number)

    def full_for(self, text: bytes) -> bool:
        """Return whether there is no room for another filter, and this would be one."""
        return text not in self._by_text and len(self.by_id) >= FILTERS_MAX

    def use(self, text: bytes, contents: BlockIndex) -> Filter:
        """Return the filter, for one more consumer."""
        found = self._by_text.get(text)
        if found is None:
            if not self.by_id:
                self.newest = contents.newest()
            found = Filter(self.next_id, text, 0, self.newest)
            self.next_id += 1
            self.add(found)
        found.users += 1
        return found

    def add(self, one: Filter) -> None:
        """Add a filter, newer than all others."""
        self.by_id[one.id] = one
        self._by_text[one.text] = one

    def leave(self, one: Filter) -> bool:
        """Take a consumer from its filter; return whether the filter was removed with it."""
        one.users -= 1
        if one.users:
            return False
        del self.by_id[one.id]
        del self._by_text[one.text]
        return True

    def clear(self) -> None:
        """Remove all: the queue is deleted."""
        self.by_id.clear()
        self._by_text.clear()

    def behind(self) -> list[Filter]:
        """Return those that have not judged every message."""
        return [one for one in self.by_id.values() if one.judged < self.newest]

    @property
    def wait(self) -> bool:
        """Return whether one has not judged every message, or not found what it has judged."""
        return bool(self.search.unfinished) or bool(self.behind())
