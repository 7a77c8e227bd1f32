"""Names of queues, sources and bindings in order; they are sorted after changes only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from warren_broker.cluster.turns import Work
from warren_machines.metadata.records import BindingKey
from warren_machines.metadata.state import Scope

RUN_NAMES: Final = 2_000
RUN_STEPS: Final = 1 << 18
"""Names that are sorted at once, and what that counts of a turn (`cluster.turns`)."""
NameT = TypeVar("NameT", str, BindingKey)


class SortedNames:
    """What lists of a vhost are sorted by, for pages of them.

    Invariant: it has lists of vhosts, and of sources in them, that were there at the last `forget`
    """

    def __init__(self) -> None:
        self._queues: dict[str, tuple[Scope, int, list[str]]] = {}
        self._sources: dict[str, tuple[Scope, int, list[str]]] = {}
        self._keys: dict[str, dict[str, tuple[int, list[BindingKey]]]] = {}

    def queues(self, vhost: str, scope: Scope) -> Work[list[str]]:
        """Return the names of a vhost's queues."""
        return (yield from self._known(self._queues, vhost, scope, scope.queues))

    def sources(self, vhost: str, scope: Scope) -> Work[list[str]]:
        """Return the names of a vhost's exchanges with bindings, but for the default one."""
        return (yield from self._known(self._sources, vhost, scope, scope.bindings))

    def _known(
        self,
        lists: dict[str, tuple[Scope, int, list[str]]],
        vhost: str,
        scope: Scope,
        names: Iterable[str],
    ) -> Work[list[str]]:
        known = lists.get(vhost)
        if known is not None and known[0] is scope and known[1] == scope.version:
            return known[2]
        version = scope.version
        found = yield from _ordered(list(names))
        lists[vhost] = (scope, version, found)
        return found

    def bindings(self, vhost: str, scope: Scope, source: str) -> Work[list[BindingKey]]:
        """Return the keys of the bindings of a source of `sources`."""
        of, version = self._keys.setdefault(vhost, {}), scope.source_versions.get(source, 0)
        known = of.get(source)
        if known is not None and known[0] == version:
            return known[1]
        found = yield from _ordered(list(scope.bindings.get(source, ())))
        of[source] = (version, found)
        return found

    def forget(self, scopes: dict[str, Scope]) -> None:
        """Forget what is not in these vhosts any more, or was of another one with the same name."""
        for vhost in [*{*self._queues, *self._sources, *self._keys}]:
            scope, known = scopes.get(vhost), self._sources.get(vhost)
            if scope is None or (known is not None and known[0] is not scope):
                for lists in (self._queues, self._sources, self._keys):
                    kept: dict[str, Any] = lists
                    kept.pop(vhost, None)
            elif len(self._keys.get(vhost, ())) > len(scope.bindings):
                self._keys.pop(vhost)


def _ordered(names: list[NameT]) -> Work[list[NameT]]:
    found: list[NameT] = []
    for at in range(0, len(names), RUN_NAMES):
        found += sorted(names[at : at + RUN_NAMES])
        yield RUN_STEPS
    found.sort()  # of sorted runs, which it merges
    return found
