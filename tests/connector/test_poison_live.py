"""Spark with a function that raises for one message; `build.py poison` has 1,000, and kills."""

from __future__ import annotations

from pathlib import Path

import pytest
from poison.run import ClaimSearch

from warren.local import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster_size() -> int:
    return 1


def test_one_message_is_dead_lettered_and_the_others_are_written_once(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    search = ClaimSearch(cluster, tmp_path, "queue", poison=2)
    bodies = search.publish(3)  # delivered in the order 2, 1, 0
    # Three messages, the one that is a part, and it alone: after the other part of two has passed.
    assert search.failures() == 3
    search.check(bodies)
