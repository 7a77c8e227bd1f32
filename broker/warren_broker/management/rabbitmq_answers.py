"""Answers of `/management` in the form that RabbitMQ's clients read.

RabbitMQ answers a refusal by its text and has arrays where the `warren` client has lists.
"""

from __future__ import annotations

from typing import Any

from warren_broker.amqp10.wire.proton import UNDESCRIBED, Array, Data
from warren_broker.errors import NotFound, Refusal, ResourceLocked
from warren_broker.management.queues import GetQueueRequest
from warren_broker.management.resource import Answer, ManagementRequest


def as_rabbitmq(request: ManagementRequest, result: Any, answer: Answer) -> Answer:
    """Return an answer of `dispatch.render_result` as RabbitMQ writes it."""
    status, body = answer
    if isinstance(result, Refusal):
        if isinstance(result, NotFound) and isinstance(request, GetQueueRequest):
            return status, result.detail.removeprefix("no ") + " not found"
        return 400 if isinstance(result, ResourceLocked) else status, result.detail
    if isinstance(body, dict) and isinstance(body.get("replicas"), list):
        replicas = Array(UNDESCRIBED, Data.STRING, *body["replicas"])
        body = {**body, "replicas": replicas}
        if not body.get("leader"):
            body.pop("leader", None)
    return status, body
