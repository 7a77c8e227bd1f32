"""Channels of pika to a cluster of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika

from warren.local import LocalCluster


@contextmanager
def channel_of(cluster: LocalCluster) -> Iterator[Any]:
    """A channel with confirms; its connection is closed in the end."""
    parameters = pika.ConnectionParameters("127.0.0.1", cluster.nodes[0].amqp_port)
    with pika.BlockingConnection(parameters) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened
