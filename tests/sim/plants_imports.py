"""Bugs to plant in imports of definitions; see `plants`."""

from __future__ import annotations

from typing import Any

from sim.planting import Replacement, by_name
from warren_broker.broker.importing import DefinitionImports
from warren_machines.metadata import imports


def an_import_is_many_changes() -> list[Replacement]:
    """The commands of an import are submitted one after the other; the last one is answered."""

    def one_by_one(self: DefinitionImports, checked: Any, done: Any, **named: Any) -> None:
        for command in checked.commands[:-1]:
            self._definitions.submit(command, lambda reply: None)
        self._definitions.submit(checked.commands[-1], done)

    return [(DefinitionImports, "submit", one_by_one)]


def a_refused_import_stays_in_part() -> list[Replacement]:
    """What an import has changed until it is refused is not put back."""
    return [(imports._Kept, "put_back", lambda self, context: None)]


def users_of_a_refused_import_stay() -> list[Replacement]:
    """Vhosts, groups and parameters are put back, users and their permissions are not."""

    def some(state: Any) -> Any:
        return (state.scopes, state.groups, state.global_parameters)

    return [(imports, "_dicts", some)]


PLANTS = by_name(
    an_import_is_many_changes,
    a_refused_import_stays_in_part,
    users_of_a_refused_import_stay,
)
