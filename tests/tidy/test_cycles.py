"""No two modules, and no two packages, import each other, directly or by way of others."""

from __future__ import annotations

from functools import cache

from tidy import house
from tidy.ratchet import CYCLES
from tools import structure


@cache
def cycles() -> list[list[str]]:
    """The cycles of the tree."""
    return structure.cycles(structure.graph(structure.modules()))


def test_no_import_cycles() -> None:
    """An import under TYPE_CHECKING counts: the reader needs both modules to understand one."""
    findings = [
        " ".join(cycle) for cycle in cycles() if not any(set(cycle) <= known for known in CYCLES)
    ]
    house.report(
        findings,
        "move what both need to a module below them, or describe the upper one by a Protocol",
    )


def test_no_cycles_between_packages() -> None:
    """A package here is a first folder of an import package, or a module beside these folders."""
    findings = [" ".join(cycle) for cycle in structure.package_cycles()]
    house.report(findings, "a reader must be able to learn packages one at a time: cut the knot")


def test_a_known_cycle_still_exists() -> None:
    found = [set(cycle) for cycle in cycles()]
    findings = [
        f"tests/tidy/ratchet.py: {name} is in no cycle of its set"
        for known in CYCLES
        for name in sorted(known)
        if not any(name in cycle and cycle <= known for cycle in found)
    ]
    house.report(findings, "remove it from CYCLES")


def test_a_cycle_is_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d"}}
    assert structure.cycles(edges) == [["a", "b", "c"]]
