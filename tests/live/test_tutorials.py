"""Tutorials and how-to pages, run from their text in an empty directory as readers paste them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.amqp.rabbitmq import OneRabbitMQ
from tests import page_script

TUTORIALS = page_script.ROOT / "docs" / "tutorials"
HOW_TO = page_script.ROOT / "docs" / "how-to"

pytestmark = pytest.mark.live


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """An empty directory; a cluster that a failed page left running in it is stopped."""
    yield tmp_path
    if (tmp_path / "warren-cluster").exists():
        command = [sys.executable, "-m", "warren.cli", "cluster", "stop"]
        subprocess.run(command, cwd=tmp_path, check=False, capture_output=True)


def test_every_tutorial_is_run_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert all(f'"{page.name}"' in text for page in TUTORIALS.glob("*.md"))


def test_first_cluster(place: Path) -> None:
    page_script.run(TUTORIALS / "first-cluster.md", place)
    assert not (place / "warren-cluster").exists()


@pytest.mark.spark
@pytest.mark.slow
def test_first_spark_query(place: Path) -> None:
    page_script.run(TUTORIALS / "first-spark-query.md", place)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_from_rabbitmq_to_parquet(place: Path) -> None:
    with OneRabbitMQ() as rabbitmq:
        uri = f"amqp://guest:guest@{rabbitmq.hosts}"
        page_script.run(TUTORIALS / "rabbitmq-to-parquet.md", place, {"RABBITMQ_URI": uri})


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("page", ["exactly-once.md", "poison-messages.md", "tuning.md"])
def test_how_to_of_spark(page: str, place: Path) -> None:
    page_script.run(HOW_TO / page, place)
