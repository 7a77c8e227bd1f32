"""Brokers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connector.amqp.rabbitmq import OneRabbitMQ, newest_root
from connector.amqp10.brokers import Artemis, Broker10, Qpid, RabbitMQ10, Warren10
from warren.local import LocalCluster


@pytest.fixture(scope="package")
def artemis() -> Iterator[Artemis]:
    """One node of ActiveMQ Artemis."""
    with Artemis() as made:
        yield made


@pytest.fixture(scope="package")
def qpid() -> Iterator[Qpid]:
    """One Qpid Broker-J."""
    with Qpid() as made:
        yield made


@pytest.fixture(scope="package")
def rabbitmq() -> Iterator[RabbitMQ10]:
    """One node of RabbitMQ 4."""
    with OneRabbitMQ(root=newest_root()) as made:
        yield RabbitMQ10(made)


@pytest.fixture(scope="package")
def warren(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warren10]:
    """One node of Warren."""
    directory: Path = tmp_path_factory.mktemp("warren")
    with LocalCluster(1, directory) as made:
        yield Warren10(made)


@pytest.fixture(
    params=["warren", "artemis", pytest.param("qpid", marks=pytest.mark.long), "rabbitmq"]
)
def broker(request: pytest.FixtureRequest) -> Broker10:
    """Each broker in turn."""
    found: Broker10 = request.getfixturevalue(request.param)
    return found
