"""Puts the connector's test world where Spark's workers find it, too."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyspark_warren.spark_line import PUSHES_FILTERS, TELLS_START

OF_LATER_SPARKS = {"test_claim_source.py": TELLS_START, "test_predicates.py": PUSHES_FILTERS}
"""Tests of what this line of Spark may not have (`build.py sparks suite`)."""
collect_ignore = [name for name, there in OF_LATER_SPARKS.items() if not there]
sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(scope="session", autouse=True)
def nodes_are_warm() -> Iterator[None]:
    """Clusters of these tests start their nodes without importing the broker each time."""
    from tests.warm_nodes import warm_nodes

    with warm_nodes():
        yield


@pytest.fixture(scope="session", autouse=True)
def few_starts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark starts its Python processes without importing everything each time, and a query that
    needs no driver of its own runs in the session of this process."""
    from spark_world.runs import DRIVER
    from spark_world.warm_python import warm

    with warm(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(DRIVER, "session", lambda: request.getfixturevalue("one_session"))
        yield


@pytest.fixture(scope="session")
def one_session() -> Iterator[Any]:
    """The Spark session of all tests of this process, because each one starts its own workers.

    The workers have the environment of the JVM's start: what any test's options name there is set
    here.
    """
    from spark_world.pipeline import session

    with environment_of_workers():
        made = session("local[2]")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def spark(one_session: Any) -> Iterator[Any]:
    """A Spark session with workers that import what this process imports; it ends its queries."""
    with environment_of_workers():
        yield one_session
    for query in one_session.streams.active:
        query.stop()
    one_session.catalog.clearCache()


@contextmanager
def environment_of_workers() -> Iterator[None]:
    """Set what Spark's workers need while the block runs."""
    from spark_world.runs import PATH
    from spark_world.warm_python import INTERPRETER_VARIABLES, interpreter

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(PATH))
        for name in INTERPRETER_VARIABLES:
            patch.setenv(name, interpreter())
        patch.setenv("RABBITMQ_PASSWORD", "guest")
        yield


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Any]:
    """A `World` over the fake broker with empty queues `in` and `out`."""
    from spark_world.fake import FakeServer
    from spark_world.runs import World

    with FakeServer() as server:
        server.broker.declare("in")
        server.broker.declare("out")
        yield World(server, tmp_path)
