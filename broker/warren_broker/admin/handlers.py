"""Which function carries out the requests of which type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from warren_broker.admin.caller import Answer, Asker
from warren_wire.admin.requests import AnyRequest

Handler: TypeAlias = Callable[[Asker, AnyRequest, Answer], None]
"""Carries a request out; it raises a Refusal, or calls back with one or with the result."""
_HANDLED = "handled_request"


def handles(kind: type[AnyRequest]) -> Callable[[Handler[AnyRequest]], Handler[AnyRequest]]:
    """Name the function that carries requests of a type out."""

    def named(handler: Handler[AnyRequest]) -> Handler[AnyRequest]:
        setattr(handler, _HANDLED, kind)
        return handler

    return named


def handlers_of(*modules: Any) -> dict[type, Handler[Any]]:
    """Return the functions of modules that `handles` names, by the types of their requests."""
    return {
        getattr(one, _HANDLED): one
        for module in modules
        for one in vars(module).values()
        if hasattr(one, _HANDLED)
    }
