"""Timers of the loop that are moved."""

from __future__ import annotations

from warren_raft.runtime.loop import Loop


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0

    def monotonic_ms(self) -> int:
        return self.now

    def epoch_ms(self) -> int:
        return self.now


def test_a_timer_is_moved_without_another_entry_in_the_heap() -> None:
    clock = SetClock()
    loop = Loop(clock)
    ran: list[tuple[str, int]] = []
    timer = loop.call_later(5, lambda: ran.append(("moved", clock.now)))
    loop.call_later(8, lambda: ran.append(("other", clock.now)))
    for step in range(1_000):
        timer.move(clock.now + (40 if step % 2 else 6))
        assert len(loop._timers) == 2
    timer.move(12)
    for clock.now in range(1, 20):
        loop.run_turn(0)
        assert timer.active == (clock.now < 12)
    assert ran == [("other", 8), ("moved", 12)]
    loop.close()


def test_a_timer_that_comes_nearer_and_goes_runs_once() -> None:
    """Each way of moving, from each time to each, with and without a look at the timers between."""
    for first in range(1, 6):
        for then in range(1, 6):
            for last in range(1, 6):
                for looks in (False, True):
                    clock = SetClock()
                    loop = Loop(clock)
                    ran: list[int] = []
                    timer = loop.call_later(
                        first, lambda ran=ran, clock=clock: ran.append(clock.now)
                    )
                    for when in (then, last):
                        timer.move(when)
                        if looks:
                            assert loop._wait_ms(None) == when, (first, then, last)
                    for clock.now in range(1, 8):
                        loop.run_turn(0)
                    assert ran == [last], (first, then, last)
                    assert not loop._timers
                    loop.close()


def test_a_moved_timer_can_be_cancelled() -> None:
    clock = SetClock()
    loop = Loop(clock)
    ran: list[int] = []
    timer = loop.call_later(5, lambda: ran.append(clock.now))
    for _ in range(500):
        timer.move(3)
        timer.move(9)
    timer.move(2)
    timer.cancel()
    for clock.now in range(1, 20):
        loop.run_turn(0)
    assert not ran and not loop._timers
    loop.close()
