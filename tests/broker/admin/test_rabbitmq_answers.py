"""Answers of `/management` as RabbitMQ's clients read them."""

from __future__ import annotations

import pytest
from proton import Array

from warren_broker.admin.answers import shown_value
from warren_broker.admin.rabbitmq_answers import as_rabbitmq
from warren_wire import errors
from warren_wire.admin.exchanges import BindRequest, DeclareExchangeRequest
from warren_wire.admin.queues import DeclareQueueRequest, GetQueueRequest, QueueInfo
from warren_wire.admin.requests import AdminRequest

BIND = BindRequest("amq.direct", "q", "", "k")
MISSING = errors.no_queue("q", "/")
LOCKED = errors.locked_queue("q", "/")
INEQUIVALENT = errors.PreconditionFailed("inequivalent arg 'type'")


@pytest.mark.parametrize(
    ("request_made", "refusal", "status"),
    [
        (BIND, MISSING, 400),
        (BIND, LOCKED, 400),
        (BIND, errors.AccessRefused("no"), 403),
        (GetQueueRequest("q"), MISSING, 404),
        (DeclareQueueRequest("q"), LOCKED, 400),
        (DeclareQueueRequest("q"), INEQUIVALENT, 409),
        (DeclareQueueRequest("q"), errors.InvalidArgument("invalid arg 'x-expires'"), 409),
        (AdminRequest(), errors.InvalidArgument("a key of the body"), 400),
        (DeclareExchangeRequest("x", kind="fanout"), INEQUIVALENT, 409),
        (DeclareExchangeRequest("x", kind="none"), errors.PreconditionFailed("unknown type"), 400),
    ],
)
def test_refusals_have_rabbitmqs_status(
    request_made: AdminRequest, refusal: errors.Refusal, status: int
) -> None:
    found, _ = as_rabbitmq(request_made, refusal, (refusal.http_status, None))
    assert found == status


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({}, {"x-queue-type": "classic"}),
        ({"x-expires": 5}, {"x-queue-type": "classic", "x-expires": 5}),
        ({"x-queue-type": "classic"}, {"x-queue-type": "classic"}),
    ],
)
def test_a_queues_type_is_among_its_arguments(
    arguments: dict[str, object], shown: dict[str, object]
) -> None:
    info = QueueInfo(
        "q",
        "/",
        type="classic",
        durable=False,
        exclusive=True,
        auto_delete=False,
        arguments=arguments,
        leader="n1",
        replicas=("n1",),
    )
    request = GetQueueRequest("q")
    status, body = as_rabbitmq(request, info, (200, shown_value(info)))
    assert status == 200
    assert body["arguments"] == shown
    assert isinstance(body["replicas"], Array)
