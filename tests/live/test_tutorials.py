"""Tutorials and how-to pages, run from their text in an empty directory as readers paste them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.amqp.rabbitmq import OneRabbitMQ
from tests import pages

pytestmark = pytest.mark.live


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """An empty directory; a cluster that a failed page left running in it is stopped."""
    yield tmp_path
    if (tmp_path / "warren-cluster").exists():
        command = [sys.executable, "-m", "warren.cli", "cluster", "stop"]
        subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)


@pytest.mark.long
def test_first_cluster(place: Path) -> None:
    pages.run("tutorials/first-cluster.md", place)
    assert not (place / "warren-cluster").exists()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_first_spark_query(place: Path) -> None:
    pages.run("tutorials/first-spark-query.md", place)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_from_rabbitmq_to_parquet(place: Path) -> None:
    with OneRabbitMQ() as rabbitmq:
        uri = f"amqp://guest:guest@{rabbitmq.hosts}"
        pages.run("tutorials/rabbitmq-to-parquet.md", place, {"RABBITMQ_URI": uri})


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("page", ["exactly-once.md", "poison-messages.md", "tuning.md"])
def test_how_to_of_spark(page: str, place: Path) -> None:
    pages.run(f"how-to/{page}", place)
