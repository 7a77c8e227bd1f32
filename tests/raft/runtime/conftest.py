"""Nodes that form a cluster, and are stopped after the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.raft.runtime.forming import Nodes


@pytest.fixture()
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    made = Nodes(tmp_path)
    yield made
    made.stop(*list(made.hosts))
    made.loop.close()
