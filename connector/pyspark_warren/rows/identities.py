"""What identifies a received message in the spool, whatever protocol it came over."""

from __future__ import annotations

from typing import Final

IDENTITY_BYTES: Final = 16
WITH_ID: Final = b"\x01"
WITHOUT_ID: Final = b"\x00"
"""The last byte of an identity: whether the message is told from others that are equal."""
DELIVERY_COUNT: Final = "x-delivery-count"
"""RabbitMQ's header of quorum queues: how often the message was delivered and returned before."""
