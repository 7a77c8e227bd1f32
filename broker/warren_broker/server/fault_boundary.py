"""The rim of one client's connection: what goes wrong inside ends that connection, nothing else."""

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
        ...


P = ParamSpec("P")
F = TypeVar("F", bound=Failing)


def guarded(
    method: Callable[Concatenate[F, P], None],
) -> Callable[Concatenate[F, P], None]:
    """A method that is called from elsewhere than the connection's own socket.

    Bytes from the socket have their rim in the loop, which ends the stream. Deliveries, answers,
    timers and alarms come from code that serves every client: an exception must not get there.
    """

    @functools.wraps(method)
    def call(self: F, *args: P.args, **values: P.kwargs) -> None:
        try:
            method(self, *args, **values)
        except Exception as fault:
            log.exception("a connection ends: %s failed", method.__qualname__)
            self.failed(fault)

    return cast("Callable[Concatenate[F, P], None]", call)


def guarded_call(client: Failing, call: Callable[..., Any]) -> Callable[..., None]:
    """The same for a function that is handed on to be called back."""

    @functools.wraps(call)
    def guard(*args: Any, **values: Any) -> None:
        try:
            call(*args, **values)
        except Exception as fault:
            log.exception("a connection ends: an answer to it failed")
            client.failed(fault)

    return guard
