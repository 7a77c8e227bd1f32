"""Counts, rates and samples of queues: never negative, never of what was before, bounded."""

from __future__ import annotations

import itertools
from random import Random

from warren_broker.counting.message_stats import (
    ACK,
    COARSE_SAMPLES,
    COUNTED,
    DELIVER,
    EXCHANGE_COUNTED,
    FINE_SAMPLES,
    LENGTHS,
    PUBLISH,
    UNKNOWN,
    VHOST_COUNTED,
    CountHistory,
    MessageCounts,
    sample_width,
)
from warren_broker.http.samples import KeptSamples, Range

WIDTH = sample_width(COUNTED)
EPOCH = 1_000_000_000_000
STEP = 5_000


class World:
    """A history, the counts that it looks at, and a clock."""

    def __init__(self, samples_max: int = 300_000) -> None:
        self.counts = MessageCounts()
        self.now = 0
        self.epoch = EPOCH
        self.history: CountHistory[int] = CountHistory(0, samples_max)
        self.lengths: dict[int, tuple[int, ...]] = {}
        self.marks: dict[int, int] = {}

    def look(self, *groups: int, after: int = STEP) -> None:
        """Sample each of these queues; the others were deleted."""
        self.now += after
        for group in groups:
            row, lengths = self.counts.rows.get(group), self.lengths.get(group)
            mark = UNKNOWN if lengths is None else self.marks.get(group, 0)
            if not self.history.unchanged(group, self.now, mark, row):
                now = self.now, self.epoch + self.now
                self.history.sample(group, now, mark, row, lengths)
        self.history.looked(self.now, groups)

    def set_lengths(self, group: int, *lengths: int) -> None:
        """What the queue's leader knows after a command."""
        self.lengths[group] = lengths
        self.marks[group] = self.marks.get(group, 0) + 1

    def samples(self, group: int) -> list[list[int]]:
        """The samples of a queue, one list for each."""
        _, numbers = self.history.samples(group)
        return [numbers[at : at + WIDTH] for at in range(0, len(numbers), WIDTH)]


def test_the_first_rate_is_of_what_came_since_the_look_before() -> None:
    world = World()
    world.look(1)
    world.counts.published(1, 50)
    world.look(1)
    assert world.history.rates(1)[PUBLISH] == 10.0
    world.look(1)
    assert not any(world.history.rates(1)), "nothing more came"
    assert world.history.rates(2)[PUBLISH] == 0.0, "an unknown queue has rates of 0"


def test_a_look_at_the_same_moment_is_no_division_by_zero_and_loses_nothing() -> None:
    world = World()
    world.counts.published(1, 50)
    world.look(1, after=0)
    assert not any(world.history.rates(1))
    world.look(1)
    assert world.history.rates(1)[PUBLISH] == 10.0
    assert world.samples(1)[-1][1 + PUBLISH] == 50


def test_lengths_have_a_rate_from_the_second_look_of_a_leader() -> None:
    """1. Another node leads.  2. This one does: what it first sees is no change of a moment."""
    world = World()
    at = len(COUNTED)
    world.look(1)
    world.set_lengths(1, 1000, 900, 100)
    world.look(1)
    assert world.history.rates(1)[at:] == (0.0, 0.0, 0.0)
    world.set_lengths(1, 900, 900, 0)
    world.look(1)
    assert world.history.rates(1)[at:] == (-20.0, 0.0, -20.0)
    del world.lengths[1]
    world.look(1)
    assert not any(world.history.rates(1)), "it does not lead any more"
    assert world.samples(1)[-1][-len(LENGTHS) :] == [UNKNOWN] * len(LENGTHS)
    world.set_lengths(1, 5, 5, 0)
    world.look(1)
    assert not any(world.history.rates(1)), "it leads again: nothing is known of between"


def test_a_queue_that_was_declared_again_begins_at_nothing() -> None:
    world = World()
    world.counts.published(1, 1000)
    world.look(1)
    world.counts.forget(1)
    world.counts.published(2, 10)  # the same name: another group
    world.look(2)
    assert list(world.history) == [2]
    assert world.history.rates(2)[PUBLISH] == 2.0
    assert world.history.samples(1) == (True, [])


def test_an_idle_queue_takes_no_samples() -> None:
    world = World()
    world.set_lengths(1, 0, 0, 0)
    for _ in range(1000):
        world.look(1)
    assert len(world.samples(1)) == 1
    world.counts.published(1, 1)
    for _ in range(1000):
        world.look(1)
    assert [one[1 + PUBLISH] for one in world.samples(1)] == [0, 1]


def test_ten_minutes_are_kept_whole_and_an_hour_by_the_minute() -> None:
    world = World()
    for _ in range(2000):
        world.counts.published(1, 5)
        world.look(1)
    times = [one[0] - EPOCH for one in world.samples(1)]
    assert times == sorted(times) and times[-1] == world.now
    fine, coarse = times[-FINE_SAMPLES:], times[:-FINE_SAMPLES]
    assert fine == [world.now - STEP * at for at in reversed(range(FINE_SAMPLES))]
    assert len(coarse) == COARSE_SAMPLES
    assert {b - a for a, b in itertools.pairwise(coarse)} == {60_000}
    assert world.history.samples(1)[0] is False, "the oldest are gone"
    assert fine[0] - coarse[0] >= 59 * 60_000


def test_samples_of_many_queues_are_bounded_and_shared() -> None:
    world, random = World(samples_max=600), Random(7)
    for _ in range(200):
        for group in range(1, 4):
            world.counts.published(group, 1)
        world.look(1, 2, 3)
    assert len(world.samples(1)) == FINE_SAMPLES + len(world.samples(1)[:-FINE_SAMPLES])
    every = range(1, 101)
    for _ in range(50):
        for group in every:
            world.counts.row(group)[random.choice((PUBLISH, DELIVER, ACK))] += random.randint(0, 9)
        world.look(*every)
        assert sum(len(world.samples(group)) for group in every) <= 600
    for group in every:
        found = world.samples(group)
        assert found and found[-1][1 : 1 + len(COUNTED)] == world.counts.row(group)
    crowd = range(1, 1001)
    for _ in range(5):
        for group in crowd:
            world.counts.published(group, 1)
        world.look(*crowd)
    assert max(len(world.samples(group)) for group in crowd) <= 2


def test_no_rate_is_negative_or_of_more_than_came() -> None:
    world, random = World(), Random(5)
    for _ in range(2000):
        came = {group: random.randint(0, 100) for group in range(1, 4)}
        for group, count in came.items():
            world.counts.published(group, count)
        after = random.randint(0, 2 * STEP)
        before = {group: world.samples(group)[-1:] for group in came}
        world.look(*came, after=after)
        for group in came:
            rate = world.history.rates(group)[PUBLISH]
            assert rate >= 0
            if after:
                held = before[group][0][1 + PUBLISH] if before[group] else 0
                grown = world.counts.row(group)[PUBLISH] - held
                assert rate <= grown / (after / 1000) + 1e-6


def test_exchanges_and_vhosts_have_samples_of_their_own_width_and_bound() -> None:
    for names in (EXCHANGE_COUNTED, VHOST_COUNTED):
        history: CountHistory[str] = CountHistory(0, 600, names)
        for step in range(1, 300):
            for key in map(str, range(20)):
                row, lengths = [step] * len(names), (step, step, 0)
                history.sample(key, (STEP * step, EPOCH + STEP * step), step, row, lengths)
            history.looked(STEP * step, map(str, range(20)))
        kept = [history.samples(str(key))[1] for key in range(20)]
        width = sample_width(names)
        assert sum(map(len, kept)) <= 600 * width
        assert kept[0][-width:] == [EPOCH + STEP * 299, *[299] * len(names), 299, 299, 0]
        assert len(history.rates("0")) == len(history.rates("unknown")) == width - 1
        assert history.lengths_by(lambda key: "even" if int(key) % 2 == 0 else "odd") == {
            "even": (2990, 2990, 0),
            "odd": (2990, 2990, 0),
        }


def points(world: World, group: int, count: int) -> list[int]:
    """What was published, a sample each STEP until now, the latest first, as far as is known."""
    wanted, now_ms = Range(count * STEP, STEP), world.epoch + world.now
    shown = KeptSamples([world.history.samples(group)]).counts("publish", wanted, now_ms)
    return [one["sample"] for one in shown]


def test_a_clock_that_was_set_back_hides_no_sample() -> None:
    """Before: counts were shown as 0, of an idle queue, too, until the clock was where it was."""
    world = World()
    for number in range(10):
        world.counts.published(5, 1)
        if number == 3:
            world.counts.published(6, 2)
        world.look(5, 6)
    assert points(world, 5, 3) == [10, 9, 8, 7]
    world.epoch -= 5 * STEP
    world.history.set_back(world.epoch + world.now)
    assert (points(world, 5, 3), points(world, 6, 3)) == ([10, 4, 3, 2], [2, 2, 0, 0])
    world.counts.published(5, 1)
    world.look(5, 6)
    assert (points(world, 5, 3), points(world, 6, 3)) == ([11, 10, 4, 3], [2, 2, 2, 0])
    world.epoch -= 3_600_000
    world.history.set_back(world.epoch + world.now)
    assert (points(world, 5, 3), points(world, 6, 3)) == ([11], [2]), "what was before is unknown"
    times = [row[0] for row in world.samples(5)]
    world.history.set_back(world.epoch + world.now)
    assert [row[0] for row in world.samples(5)] == times


def test_coarse_samples_that_are_dated_later_go_with_a_clock_that_was_set_back() -> None:
    world = World()
    for _ in range(FINE_SAMPLES + COARSE_SAMPLES):
        world.counts.published(5, 1)
        world.look(5)
    for back in (STEP, 100 * STEP, 1_000 * STEP):
        world.epoch -= back
        world.history.set_back(world.epoch + world.now)
        times = [row[0] for row in world.samples(5)]
        assert times == sorted(set(times)) and times[-1] <= world.epoch + world.now
        assert points(world, 5, 1)[0] == FINE_SAMPLES + COARSE_SAMPLES
