"""The fault boundary of one client's connection: a fault inside ends only that connection."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

log = logging.getLogger(__name__)


class Failing(Protocol):
    """A connection that can be ended from inside."""

    def failed(self, fault: Exception) -> None:
        """End at once; must not raise."""


P = ParamSpec("P")
F = TypeVar("F", bound=Failing)


def guarded(
    method: Callable[Concatenate[F, P], None],
) -> Callable[Concatenate[F, P], None]:
    """Guard a method that is not called by the connection's own socket.

    The loop is the fault boundary for bytes from the socket: it ends the stream. Deliveries,
    answers, timers and alarms come from code that serves all clients: an exception must not reach
    it.
    """

    @functools.wraps(method)
    def call(self: F, *args: P.args, **values: P.kwargs) -> None:
        try:
            method(self, *args, **values)
        except Exception as fault:
            log.exception("a connection ends: %s failed", method.__qualname__)
            self.failed(fault)

    return cast("Callable[Concatenate[F, P], None]", call)


def guarded_call(client: Failing, call: Callable[..., object]) -> Callable[..., None]:
    """Guard a function that is passed on as a callback: one for each run of publishes."""

    def guard(*args: Any, **values: Any) -> None:
        try:
            call(*args, **values)
        except Exception as fault:
            log.exception("a connection ends: an answer to it failed")
            client.failed(fault)

    return guard
