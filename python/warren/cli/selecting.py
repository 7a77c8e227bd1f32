"""The options of commands that say which messages of a queue are meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

from warren.cli.requests import parameters_of
from warren_wire.admin.browse import SelectingRequest
from warren_wire.admin.letters import GroupLettersRequest

_KEYS = [key for key in SelectingRequest.__struct_fields__ if key not in ("name", "token")]


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with an option for each field of `SelectingRequest`.

    command  has them all in its parameter `selection`, by the field's name
    """
    options = {key: parameters_of(GroupLettersRequest, {})[key] for key in _KEYS}

    def called(**given: Any) -> None:
        selection = {key: given.pop(key) for key in _KEYS}
        command(selection=selection, **given)

    hints = get_type_hints(command, include_extras=True)
    own = [one for one in inspect.signature(command).parameters.values() if one.name in hints]
    made = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[one.name])
        for one in own
        if one.name != "selection"
    ]
    made += [
        inspect.Parameter(
            key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )
        for key, (annotation, default) in options.items()
    ]
    called.__annotations__ = {one.name: one.annotation for one in made}
    vars(called)["__signature__"] = inspect.Signature(made)
    called.__doc__, called.__name__ = command.__doc__, command.__name__
    return called
