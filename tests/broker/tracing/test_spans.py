"""The sampler's bounds, and the spans that wait."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from warren_broker.settings.http_settings import TraceSettings
from warren_broker.tracing.spans import WAITING_SPANS_MAX, Span, Tracing, message_facts, shown
from warren_wire.trace_context import TraceContext

CONTEXT = TraceContext(b"t" * 16, b"s" * 8)
SPAN = Span("publish q", "SERVER", CONTEXT, b"", 1, 2, {})
SECOND = 1_000_000_000


class World:
    """A sampler, with a clock that is set by hand, and what it counts."""

    def __init__(self, **settings: Any) -> None:
        self.now_ns = 5 * SECOND
        self.counted: Counter[str] = Counter()
        self.tracing = Tracing(
            TraceSettings(enabled=True, **settings), self.count, lambda: self.now_ns, Random(1)
        )

    def count(self, outcome: str, count: int) -> None:
        self.counted[outcome] += count

    def taken(self) -> int:
        """How many spans may be begun now."""
        number = 0
        while self.tracing.take():
            number += 1
        return number


def test_no_more_spans_begin_than_the_limit_allows() -> None:
    world = World(spans_per_second_max=100)
    assert world.taken() == 100, "a burst"
    assert not world.tracing.open() and world.counted["limited"] == 2
    world.now_ns += SECOND // 2
    assert world.taken() == 50
    world.now_ns += 60 * SECOND
    assert world.taken() == 100, "no more than a second's"
    begun = 0
    for _ in range(1_000):
        world.now_ns += SECOND // 500
        begun += world.taken()
    assert begun <= 200


def test_a_clock_that_is_set_back_neither_stops_nor_adds() -> None:
    world = World(spans_per_second_max=10)
    assert world.taken() == 10
    world.now_ns -= 3 * SECOND
    assert world.taken() == 0
    world.now_ns += SECOND
    assert world.taken() == 10


@pytest.mark.parametrize(
    ("ratio", "least", "most"), [(0.0, 0, 0), (0.1, 800, 1_200), (1.0, 10_000, 10_000)]
)
def test_a_part_of_the_messages_is_picked(ratio: float, least: int, most: int) -> None:
    world, picked = World(ratio=ratio), 0
    for size in (1, 7, 92) * 100:
        picks = [*world.tracing.picks(size)]
        assert picks == sorted({*picks}) and all(0 <= at < size for at in picks)
        picked += len(picks)
    assert least <= picked <= most


def test_picking_ends_where_no_more_may_be_sampled() -> None:
    world = World(ratio=1.0)
    picks: Any = world.tracing.picks(1 << 40)
    assert [next(picks), next(picks)] == [0, 1]
    picks.close()
    assert next(world.tracing.picks(3)) == 0


def test_new_contexts_are_valid_and_differ() -> None:
    tracing = World().tracing
    made = {tracing.new_context() for _ in range(100)}
    assert len({one.trace_id for one in made}) == len({one.span_id for one in made}) == 100
    assert tracing.new_context(b"t" * 16).trace_id == b"t" * 16


def test_what_waits_has_a_bound_and_the_rest_is_counted() -> None:
    world = World()
    for _ in range(WAITING_SPANS_MAX + 3):
        world.tracing.record(SPAN)
    assert world.counted == {"recorded": WAITING_SPANS_MAX, "dropped": 3}
    assert len(world.tracing.taken(10)) == 10
    assert len(world.tracing.taken(WAITING_SPANS_MAX)) == WAITING_SPANS_MAX - 10
    assert world.tracing.taken(1) == []


def test_names_that_are_no_text_are_shown_as_text() -> None:
    assert shown(b"q\xff") == shown("q\udcff") == "q\ufffd"
    assert message_facts("deliver", "process", "q", more=1)["more"] == 1
