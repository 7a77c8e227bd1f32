"""Packed places against a dictionary, and a group's log made of them."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pytest

from warren_raft.index_set import PAGE, PAGE_BITS, Indexes
from warren_raft.storage import entry_index
from warren_raft.storage.entry_index import EXACT_PAGES_MAX, Columns, EntryIndex, Rows
from warren_raft.storage.group_log import GroupLog
from warren_raft.storage.wal import Place


class World:
    """Both implementations, and the same random operations on both."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.places = EntryIndex()
        self.plain: dict[int, Place] = {}
        self.index = self.random.choice((0, PAGE - 3, 10**6))
        self.file, self.offset = 1, 40
        self.gap = self.random.choice((56, 96))

    def next_place(self) -> Place:
        random = self.random
        if random.random() < 0.002:
            self.file, self.offset = self.file + 1, 40
        place = Place(self.file, self.offset, random.choice((100, 100, random.randint(0, 70_000))))
        self.offset += place.length + (self.gap if random.random() < 0.9 else 5000)
        return place

    def next_index(self) -> int:
        self.index += self.random.choice((1, 1, 1, 1, 2, 9, self.random.choice((1, 2 * PAGE))))
        return self.index

    def add(self) -> None:
        for _ in range(self.random.choice((1, 5, 300, 1200))):
            index, place = self.next_index(), self.next_place()
            self.places.add(index, place)
            self.plain[index] = place

    def add_rows(self) -> None:
        indexes, offsets, lengths = array("Q"), array("I"), array("I")
        for _ in range(self.random.randint(0, 1500)):
            index, place = self.next_index(), self.next_place()
            place = place._replace(file=1 << 31)
            indexes.append(index)
            offsets.append(place.offset)
            lengths.append(place.length)
            self.plain[index] = place
        self.places.add_rows(1 << 31, indexes, offsets, lengths)

    def extend(self) -> None:
        other = EntryIndex()
        for _ in range(self.random.choice((0, 3, 2000))):
            index, place = self.next_index(), self.next_place()
            other.add(index, place)
            self.plain[index] = place
        self.places.extend(other)

    def some(self) -> int:
        return self.random.choice([*self.plain, self.index + 1, 0])

    def cut(self) -> None:
        index = max(self.some(), self.index - 2000)
        self.places.cut(index)
        self.plain = {i: p for i, p in self.plain.items() if i < index}
        self.index = max(self.plain, default=index)

    def cut_head(self) -> None:
        index = self.some()
        self.places.cut_head(index)
        self.plain = {i: p for i, p in self.plain.items() if i > index}

    def pick(self) -> None:
        share = self.random.choice((0.02, 0.5, 0.99, 1.0))
        low = self.some()
        kept = sorted(i for i in self.plain if i >= low or self.random.random() < share)
        self.places = self.places.pick(Indexes.of([*kept, self.index + 7]))
        self.plain = {i: self.plain[i] for i in kept}

    def move(self) -> None:
        if not self.plain:
            return
        old = self.random.choice([*self.plain.values()]).file
        found = [i for i, p in self.plain.items() if p.file == old]
        rows = array("Q", found)
        lost = self.random.choice((0.0, 0.05))
        befores = array("I", [self.plain[i].offset + (self.random.random() < lost) for i in found])
        afters = array("I", [40 + 100 * n for n in range(len(found))])
        self.file += 1
        self.places.move(rows, old, befores, self.file, afters)
        for index, before, after in zip(found, befores, afters, strict=True):
            if self.plain[index].offset == before:
                self.plain[index] = Place(self.file, after, self.plain[index].length)

    def compare(self) -> None:
        places, plain = self.places, self.plain
        places.check()
        assert (len(places), places.bytes) == (len(plain), sum(p.length for p in plain.values()))
        assert list(places.indexes()) == sorted(plain)
        for index in {self.some() for _ in range(20)}:
            assert places.get(index) == plain.get(index), index
        index = self.some()
        assert places.bytes_after(index) == sum(p.length for i, p in plain.items() if i > index)
        share = self.random.choice((0.0, 0.1, 0.9, 1.0))
        known = sorted({*plain, self.index + 1, 0})
        wanted = [i for i in known if self.random.random() < share]
        held = sum(plain[i].length for i in wanted if i in plain)
        assert places.bytes_of(Indexes.of(wanted)) == held
        files: dict[int, list[int]] = {}
        for place in plain.values():
            found = files.setdefault(place.file, [0, 0])
            found[0], found[1] = found[0] + 1, found[1] + place.length
        tally: dict[int, list[int]] = {}
        places.tally(tally)
        assert tally == files
        for file in [*list(files)[:3], 77]:
            mine = [i for i, p in plain.items() if p.file == file]
            rows = places.rows(file)
            assert list(rows.indexes) == mine
            assert list(rows.offsets) == [plain[i].offset for i in mine]
            assert list(rows.lengths) == [plain[i].length for i in mine]


@pytest.mark.parametrize("seed", range(12))
def test_packed_places_are_a_dictionary(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_index, "EXACT_PAGES_MAX", 1 << 30)
    world = World(seed)
    deeds: list[Any] = [
        world.add,
        world.add,
        world.add,
        world.add_rows,
        world.extend,
        world.cut,
        world.cut_head,
        world.pick,
        world.move,
    ]
    for _ in range(25):
        world.random.choice(deeds)()
        world.compare()


def test_neighbours_of_one_size_cost_nothing() -> None:
    columns = Columns()
    for at in range(1000):
        columns.indexes.append(5000 + at)
        columns.files.append(3)
        columns.offsets.append(40 + at * 256)
        columns.lengths.append(200)
    assert len(columns.packed()) < 80


def a_log(count: int) -> GroupLog:
    log = GroupLog(1)
    for index in range(1, count + 1):
        log.append_at(index, 1 + index // 700, Place(1 + index // 900, 40 + index * 100, 60))
    return log


def test_a_log_lets_go_keeps_and_finds() -> None:
    log = a_log(5000)
    live = [7, 8, 1030, *range(2500, 4000)]
    log.drop_to(4500, live, 9)
    log.check()
    assert (list(log.live), log.first, log.last) == (live, 4501, 5000)
    assert log.place(8) == Place(1, 840, 60)
    for gone in (6, 1031, 4400, 5001):
        with pytest.raises(KeyError):
            log.place(gone)
    fewer = [8, *range(3000, 4000), *range(4501, 4600)]
    log.drop_to(4700, Indexes.of(fewer), 9)
    log.check()
    assert list(log.live) == fewer
    rows: Rows = log.rows(4)
    assert list(rows.indexes) == [*range(3000, 3600)] and set(rows.terms) == {0}
    tail = log.rows(6)
    assert list(tail.indexes) == [*range(4501, 4600), *range(4701, 5001)]
    assert list(tail.terms)[99:] == [1 + index // 700 for index in range(4701, 5001)]
    log.move(rows, 4, 1 << 31, array("I", [offset + 1 for offset in rows.offsets]))
    assert log.place(3000) == Place(1 << 31, 40 + 3000 * 100 + 1, 60)
    assert not log.rows(4).indexes and log.rows(1 << 31).indexes[-1] == 3599
    assert log.held_bytes(4700) == (60 + 56) * (len(fewer))
    log.truncate(4800)
    log.check()
    log.append_at(4800, 9, Place(9, 40, 1))
    log.check()
    assert list(log.rows(9).indexes) == [4800]


def test_a_snapshot_amid_a_page_counts_what_is_needed_once() -> None:
    """In proportion, each side counted all that is live in the page."""
    log = a_log(500)
    log.drop_to(250, list(range(1, 251)), 9)
    live = [*range(100, 251), *range(300, 501)]
    assert log.needed_bytes(live) == (60 + 56) * len(live)
    assert log.held_bytes(500) == (60 + 56) * 500


def test_parts_of_many_pages_are_counted_in_proportion() -> None:
    """The time of it is bounded; of the largest pages it is exact."""
    places = EntryIndex()
    pages = EXACT_PAGES_MAX + 4
    for index in range(pages << PAGE_BITS):
        large = index >> PAGE_BITS >= 4 and index % 2
        places.add(index, Place(1, 40 + index * 100, 90 if large else 10))
    odd = Indexes.of(range(1, pages << PAGE_BITS, 2))
    half = 1 << PAGE_BITS - 1
    assert places.bytes_of(odd) == EXACT_PAGES_MAX * half * 90 + 4 * half * 10


def test_what_a_snapshot_refers_to_must_be_there() -> None:
    log = a_log(2000)
    log.drop_to(1500, [4, 9], 9)
    with pytest.raises(KeyError):
        log.drop_to(1600, [4, 8, 1550], 9)
