"""Imports go down only."""

from __future__ import annotations

from tidy import house
from tools import structure


def test_imports_go_down() -> None:
    findings = []
    for module in house.sources():
        for line, name in house.imports(module):
            target = name.split(".")[0]
            if target not in house.SOURCES:
                continue
            here = f"{module.place}:{line}"
            if house.floor_of(name) > module.floor:
                findings.append(
                    f"{here}: floor {module.floor} imports {name} on floor {house.floor_of(name)}"
                )
    house.report(
        findings,
        "imports go down only (docs/explanation/architecture.md): move the shared value "
        "to a lower floor, or hand it in as an argument",
    )


def test_packages_know_those_below() -> None:
    found = structure.upward(structure.graph(structure.modules()))
    house.report(found, "move what both need into warren_wire, or hand it in")


def test_every_module_has_a_floor() -> None:
    assert house.sources()
    assert all(module.floor in range(6) for module in house.sources())


def test_a_name_in_the_table_exists() -> None:
    """So that the table does not keep what is gone."""
    names = {module.name for module in house.sources()}
    prefixes = {".".join(name.split(".")[:n]) for name in names for n in range(1, 9)}
    gone = sorted({*house.FLOORS, *house.LOOSE} - prefixes)
    house.report(gone, "remove it from FLOORS in tests/tidy/house.py")
