"""Puts the connector's test world where Spark's workers find it, too."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(scope="session", autouse=True)
def nodes_are_warm() -> Iterator[None]:
    """Clusters of these tests start their nodes without importing the broker each time."""
    from tests.warm_nodes import warm_nodes

    with warm_nodes():
        yield


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A Spark session with workers that import what this process imports.

    The sessions of one process share a JVM, and its workers have the environment of its start: what
    any test's options name there is set here.
    """
    from spark_world.pipeline import session
    from spark_world.runs import PATH

    needed = {
        "PYTHONPATH": os.pathsep.join(PATH),
        "PYSPARK_PYTHON": sys.executable,
        "RABBITMQ_PASSWORD": "guest",
    }
    was = {name: os.environ.get(name) for name in needed}
    os.environ.update(needed)
    made = session("local[2]")
    yield made
    made.stop()
    for name, value in was.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Any]:
    """A `World` over the fake broker with empty queues `in` and `out`."""
    from spark_world.fake import FakeServer
    from spark_world.runs import World

    with FakeServer() as server:
        server.broker.declare("in")
        server.broker.declare("out")
        yield World(server, tmp_path)
