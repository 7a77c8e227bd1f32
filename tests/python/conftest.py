"""Nodes that start without importing the broker each time, but for tests of starting itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def nodes_are_warm() -> Iterator[None]:
    """Clusters of these tests start their nodes from a template."""
    from tests.warm_nodes import warm_nodes

    with warm_nodes():
        yield
