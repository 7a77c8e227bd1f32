"""A RabbitMQ node that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connector.amqp.rabbitmq import OneRabbitMQ


@pytest.fixture(scope="package")
def rabbitmq() -> Iterator[OneRabbitMQ]:
    """One node; a test that kills it starts it again, and queues have names of their own."""
    with OneRabbitMQ() as made:
        yield made
