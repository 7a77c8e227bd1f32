"""Names of sources and keys of bindings are sorted after changes only, and forgotten in time."""

from __future__ import annotations

from typing import Any

from warren_broker.cluster.sorted_names import SortedNames
from warren_machines.metadata.records import Binding, Exchange, Vhost
from warren_machines.metadata.state import Scope


def done(work: Any) -> Any:
    try:
        while True:
            next(work)
    except StopIteration as ended:
        return ended.value


def bound(scope: Scope, source: str, key: str) -> None:
    scope.exchanges[source] = Exchange("/", source, "direct", True, False, False)
    scope.add_binding(Binding("/", source, "q", True, key))


def test_keys_are_sorted_after_a_change_of_their_source() -> None:
    names, scope = SortedNames(), Scope(Vhost("/"))
    for source, key in (("b", "2"), ("a", "1"), ("b", "1")):
        bound(scope, source, key)
    assert done(names.sources("/", scope)) == ["a", "b"]
    first = done(names.bindings("/", scope, "b"))
    assert [key for _, _, key, _ in first] == ["1", "2"]
    bound(scope, "a", "0")
    assert done(names.bindings("/", scope, "b")) is first
    assert [key for _, _, key, _ in done(names.bindings("/", scope, "a"))] == ["0", "1"]
    bound(scope, "b", "3")
    assert len(done(names.bindings("/", scope, "b"))) == 3


def test_names_of_a_vhost_that_ended_are_forgotten() -> None:
    names, scope = SortedNames(), Scope(Vhost("/"))
    bound(scope, "a", "1")
    done(names.sources("/", scope))
    old = done(names.bindings("/", scope, "a"))
    names.forget({"/": scope})
    assert done(names.bindings("/", scope, "a")) is old
    again = Scope(Vhost("/"))
    bound(again, "a", "2")
    names.forget({"/": again})
    assert done(names.bindings("/", again, "a")) != old
    names.forget({})
    assert not names._keys and not names._sources
