"""Calls of the administration, which derive from its requests (`warren_wire.admin`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from msgspec import structs

from warren.connection import Connection
from warren.errors import PeerError, UsageError, WarrenError
from warren.wire import Request
from warren_wire.admin.queue_pages import QueuesPage
from warren_wire.admin.queues import QueueInfo
from warren_wire.admin.requests import AdminRequest, AnyAdminRequest, answer_type, written

P = ParamSpec("P")
T = TypeVar("T")


class AdminCalls:
    """Calls over one connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def ask(
        self,
        request: AdminRequest[T],
        *,
        timeout_s: float | None = None,
        is_answer: Callable[[int, Any], bool] = lambda status, answer: False,
    ) -> T:
        """Return what a request is answered, or raise the refusal; see `Connection.request`."""
        method, path, body = path_and_body(request)
        answer = self.connection.request(
            method, path, body, timeout_s=timeout_s, is_answer=is_answer
        )
        return converted(request, answer)

    def ask_each(self, asked: Sequence[Sequence[AnyAdminRequest]]) -> list[list[Any]]:
        """Make sequences of requests in one round trip; see `Connection.request_each`."""
        written = [[path_and_body(one) for one in each] for each in asked]
        return [
            [
                answer if isinstance(answer, WarrenError) else converted(one, answer)
                for one, answer in zip(each, answers, strict=False)
            ]
            for each, answers in zip(asked, self.connection.request_each(written), strict=True)
        ]


def call(kind: Callable[P, AdminRequest[T]]) -> Callable[Concatenate[AdminCalls, P], T]:
    """Return the method that makes requests of a type: it has the request's fields."""

    def made(self: AdminCalls, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.ask(kind(*args, **kwargs))

    made.__doc__ = kind.__doc__
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    fields = inspect.signature(kind).parameters.values()
    made.__signature__ = inspect.Signature([own, *fields])  # type: ignore[attr-defined]
    return made


def path_and_body(request: AnyAdminRequest) -> Request:
    """Return a request as method, path and body; raises UsageError."""
    try:
        return written(request)
    except ValueError as error:
        raise UsageError(str(error)) from None


def converted(request: AdminRequest[T], answer: Any) -> T:
    """Return the value of an answer; keys that this version does not know are ignored."""
    kind = answer_type(type(request))
    found: Any
    try:
        if kind is int:
            found = int(answer[request.count_key])
        elif kind in (None, type(None)):
            found = None
        elif kind is QueueInfo:
            found = queue_of(answer)
        elif kind == list[QueueInfo]:
            found = [queue_of(one) for one in answer]
        elif kind is QueuesPage:
            items = tuple(queue_of(one) for one in answer["items"])
            found = structs.replace(msgspec.convert({**answer, "items": ()}, kind), items=items)
        else:
            found = msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise PeerError(
            f"the node's answer is not known to this client ({error}): use the client of "
            "the cluster's version"
        ) from error
    return found  # type: ignore[no-any-return]


def queue_of(body: dict[str, Any]) -> QueueInfo:
    """Return a queue; what it says as null has its default."""
    known = {key: value for key, value in body.items() if value is not None}
    by_priority = dict(known.get("by_priority", ()))
    return msgspec.convert({**known, "by_priority": by_priority}, QueueInfo)
