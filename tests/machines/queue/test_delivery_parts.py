"""Cutting a delivered run keeps each message's id, place and counts."""

from __future__ import annotations

from warren_machines.queue.commands import Delivery, part_of, rest_of

RUN = Delivery(100, 7, 3, 9, 2, 4, ((104, (("x-opt-a", b"\x41"),)),))


def messages(run: Delivery) -> list[tuple[int, ...]]:
    """Id, entry, ordinal and both counts of each message."""
    return [
        (run.first_msg_id + at - run.first, run.index, at, run.delivery_count, run.acquired_count)
        for at in range(run.first, run.last + 1)
    ]


def test_parts_are_slices_of_the_run() -> None:
    whole = messages(RUN)
    assert len(whole) == 7
    for start in range(8):
        assert messages(rest_of(RUN, start)) == whole[start:]
        for end in range(start, 8):
            part = part_of(RUN, start, end)
            assert messages(part) == whole[start:end]
            assert part.annotations == RUN.annotations


def test_nothing_to_take_away_leaves_the_run_as_it_is() -> None:
    assert rest_of(RUN, 0) is RUN
    assert rest_of(RUN, -5) is RUN
