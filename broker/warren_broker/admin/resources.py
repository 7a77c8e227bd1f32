"""The handlers of all requests of the administration, whichever way they come in.

A handler is a function of `(asker, request, answer)` in its subject's module. It handles requests
of the type that its annotation names: it raises a Refusal, or calls back with one or a result.
The route's tag has been checked (`AdminRoute.check`), what else the user needs it checks itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Final, get_args, get_type_hints

from warren_broker import admin
from warren_wire.admin.resources import SUBJECTS

PARAMETERS: Final = ["asker", "request", "answer"]


def handlers_of(*modules: ModuleType) -> dict[type, Callable[..., None]]:
    """Return the handlers of modules by the types of their requests."""
    found: dict[type, Callable[..., None]] = {}
    for module in modules:
        for one in vars(module).values():
            if inspect.isfunction(one) and [*inspect.signature(one).parameters] == PARAMETERS:
                named = get_type_hints(one)["request"]
                for kind in get_args(named) or (named,):
                    assert kind not in found, (kind, one)
                    found[kind] = one
    return found


HANDLERS = handlers_of(*(import_module(f"{admin.__name__}.{name}") for name in SUBJECTS))
