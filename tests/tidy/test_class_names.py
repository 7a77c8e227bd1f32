"""A class name stands for one thing: it is defined once in the four packages."""

from __future__ import annotations

from tidy import house
from tools import structure

BOTH_SIDES = {
    "AccessRefused": "the error of the broker, and of its client",
    "Connection": "a client's with the broker, as each side has it",
    "NotFound": "the error of the broker, and of its client",
    "PeerError": "the error of the client, and of Raft",
    "Selection": "some messages of a table, and some queues of a query",
    "Surroundings": "what routing knows beside its table, and a Spark driver beside its options",
    "Unavailable": "the error of the broker, of its client, and of Raft",
    "UsageError": "the error of the client, and of Raft",
}
"""Names that are defined in two or three packages, and what they stand for there."""


def test_a_class_name_is_defined_once() -> None:
    doubles = structure.class_names(structure.modules())
    findings = [
        f"{name}: {' '.join(where)}" for name, where in doubles.items() if name not in BOTH_SIDES
    ]
    house.report(findings, "name each class after what it is in its own module's subject")


def test_what_is_on_both_sides_is_in_different_packages() -> None:
    doubles = structure.class_names(structure.modules())
    findings = [
        f"tests/tidy/test_class_names.py: {name} is not defined in several packages"
        for name in BOTH_SIDES
        if len({where.partition(".")[0] for where in doubles.get(name, [])}) < 2
    ]
    house.report(findings, "remove it from BOTH_SIDES, or rename one of the classes")
