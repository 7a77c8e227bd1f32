"""A whole cluster with a queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker.cluster.membership.clusters import begun
from broker.cluster.universe import Universe


@pytest.fixture
def universe() -> Iterator[Universe]:
    """Start nodes a, b and c with a quorum queue `q` on all three."""
    made = begun()
    yield made
    made.close()
