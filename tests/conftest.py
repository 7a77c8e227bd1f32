"""Hypothesis settings, clusters that the tests of a module share, nodes' logs beside failures."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.node_logs import show_logs

# How fast an example is made, or run, says how busy the machine is, not whether the code is right.
settings.register_profile(
    "busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy machine")
COLLECT_AFTER = (20_000, 10, 10)
"""gc thresholds: nearly all objects of a test are freed by their counts of references."""


def pytest_collection_finish() -> None:
    """Leave out of garbage collections what stays to the end: thousands of tests, all modules."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


@pytest.fixture(scope="module")
def cluster_size() -> int:
    """Number of nodes of `cluster`; a module may override it."""
    return 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, cluster_size: int) -> Iterator[Any]:
    """A `LocalCluster` of real nodes; every test of the module leaves them running."""
    from warren.local import LocalCluster

    with LocalCluster(cluster_size, tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A failure shows the ends of the nodes' logs: it may be the only one, on another machine."""
    report: Any = yield
    if report.failed:
        show_logs(item, report)
    return report
