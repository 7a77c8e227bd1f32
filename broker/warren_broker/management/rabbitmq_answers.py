"""Answers of `/management` in the form that RabbitMQ's clients read.

RabbitMQ answers a refusal by its text and has arrays where the `warren` client has lists.
"""

from __future__ import annotations

from typing import Any

from warren_broker.amqp10.wire.proton import UNDESCRIBED, Array, Data
from warren_broker.errors import NotFound, PreconditionFailed, Refusal, ResourceLocked
from warren_broker.management.queues import BindRequest, DeclareExchangeRequest, GetQueueRequest
from warren_broker.management.resource import Answer, ManagementRequest
from warren_broker.metadata.exchange_types import is_kind


QUEUE_TYPE = "x-queue-type"
"""RabbitMQ shows it among a queue's arguments, whether the declaration had it or not."""


def as_rabbitmq(request: ManagementRequest, result: Any, answer: Answer) -> Answer:
    """Return an answer of `dispatch.render_result` as RabbitMQ writes it."""
    status, body = answer
    if isinstance(result, Refusal):
        if isinstance(result, NotFound) and isinstance(request, GetQueueRequest):
            return status, result.detail.removeprefix("no ") + " not found"
        return 400 if _is_of_the_request(request, result) else status, result.detail
    if isinstance(body, dict) and isinstance(body.get("replicas"), list):
        replicas = Array(UNDESCRIBED, Data.STRING, *body["replicas"])
        arguments = {QUEUE_TYPE: body["type"], **body["arguments"]}
        body = {**body, "replicas": replicas, "arguments": arguments}
        if not body.get("leader"):
            body.pop("leader", None)
    return status, body


def _is_of_the_request(request: ManagementRequest, refusal: Refusal) -> bool:
    """Return whether RabbitMQ takes the request itself for the fault (400)."""
    if isinstance(request, BindRequest):
        return isinstance(refusal, NotFound | ResourceLocked)
    if isinstance(request, DeclareExchangeRequest) and not is_kind(request.kind):
        return isinstance(refusal, PreconditionFailed)
    return isinstance(refusal, ResourceLocked)
