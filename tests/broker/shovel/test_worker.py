"""When a shovel that has failed begins again."""

from __future__ import annotations

import pytest

from warren_broker.shovel.worker import DELAY_S_MAX, delay_after


@pytest.mark.parametrize(
    ("configured_s", "expected"),
    [
        (1, [1, 2, 4, 8, 16, 32, 60, 60]),
        (5, [5, 10, 20, 40, 60, 60]),
        (0.5, [0.5, 1, 2, 4]),
        (90, [90, 90, 90]),
    ],
)
def test_the_delay_is_doubled_up_to_a_minute_or_what_is_configured(
    configured_s: float, expected: list[float]
) -> None:
    assert [delay_after(configured_s, rounds) for rounds in range(len(expected))] == expected


def test_ever_so_many_failures_have_a_delay() -> None:
    assert delay_after(1e-3, 10**6) == DELAY_S_MAX
