"""Answers of `/management` in the form that RabbitMQ's clients read.

RabbitMQ answers a refusal by its text and has arrays where the `warren` client has lists.
"""

from __future__ import annotations

from warren_broker.admin.answers import Answered
from warren_machines.metadata.exchange_types import is_kind
from warren_wire.admin.exchanges import BindRequest, DeclareExchangeRequest
from warren_wire.admin.queues import VOLATILE_TYPE, DeclareQueueRequest, GetQueueRequest
from warren_wire.admin.requests import AnyAdminRequest
from warren_wire.amqp10.proton import UNDESCRIBED, Array, Data
from warren_wire.errors import (
    InvalidArgument,
    NotFound,
    PreconditionFailed,
    Refusal,
    ResourceLocked,
)


def as_rabbitmq(request: AnyAdminRequest, result: object, answer: Answered) -> Answered:
    """Return an answer of `answers.rendered` as RabbitMQ writes it."""
    status, body = answer
    if isinstance(result, Refusal):
        if isinstance(result, NotFound) and isinstance(request, GetQueueRequest):
            return status, result.detail.removeprefix("no ") + " not found"
        return _status(request, result, status), result.detail
    if isinstance(request, DeclareExchangeRequest):
        return 204, body
    if isinstance(body, dict) and isinstance(body.get("replicas"), list):
        replicas = Array(UNDESCRIBED, Data.STRING, *body["replicas"])
        arguments = body["arguments"]
        if body["type"] != VOLATILE_TYPE:  # as RabbitMQ shows them, whatever was declared
            arguments = {"x-queue-type": body["type"], **arguments}
        body = {**body, "replicas": replicas, "arguments": arguments}
        if not body.get("leader"):
            body.pop("leader", None)
    return status, body


def _status(request: AnyAdminRequest, refusal: Refusal, status: int) -> int:
    """Return the status with which RabbitMQ refuses a request; `status`: the same as here."""
    if isinstance(refusal, ResourceLocked):
        return 400
    if isinstance(request, BindRequest) and isinstance(refusal, NotFound):
        return 400
    if isinstance(request, DeclareQueueRequest) and isinstance(refusal, InvalidArgument):
        return 409
    if isinstance(request, DeclareExchangeRequest) and not is_kind(request.kind):
        return 400 if isinstance(refusal, PreconditionFailed) else status
    return status
