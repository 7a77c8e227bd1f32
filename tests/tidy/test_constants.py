"""A constant has one owner: no two modules of the packages give one name a value of their own."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator

from tidy import house
from warren_wire import VERSION

OWN = {
    "FORMAT": "each file format counts its own versions",
    "MAGIC": "each file format begins with its own bytes",
    "VERSION": "each file format and state machine counts its own versions",
}
"""Name → why several modules may each have their own."""


def literal(value: ast.expr | None) -> bool:
    """A value written out: numbers, strings, and arithmetic or tuples of them."""
    if isinstance(value, ast.BinOp):
        return literal(value.left) and literal(value.right)
    if isinstance(value, ast.UnaryOp):
        return literal(value.operand)
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return all(map(literal, value.elts))
    return isinstance(value, ast.Constant)


def constants(module: house.Module) -> Iterator[tuple[str, int]]:
    """Name and line of every constant that the module itself gives a value, without underscores."""
    for node in module.tree.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper() and literal(node.value):
                yield target.id.strip("_"), node.lineno


def test_a_constant_has_one_owner() -> None:
    owners: dict[str, list[str]] = {}
    for module in house.sources():
        for name, line in constants(module):
            owners.setdefault(name, []).append(f"{module.place}:{line}")
    twice = {name: places for name, places in owners.items() if len(places) > 1}
    house.report(
        [f"{name}: {', '.join(places)}" for name, places in twice.items() if name not in OWN],
        "import it from the module that owns it; give another meaning another name",
    )
    assert not OWN.keys() - twice.keys(), "has one owner by now: remove it from OWN"


def test_the_version_has_one_owner() -> None:
    project = tomllib.loads((house.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "warren_wire.VERSION"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


def test_the_checksum_has_one_owner() -> None:
    findings = [
        f"{module.place}:{line}: {name}"
        for module in house.sources()
        for line, name in house.imports(module)
        if name.startswith("zlib_ng") or name == "zlib.crc32"
    ]
    findings += [
        f"{module.place}:{node.lineno}: {ast.unparse(node)}"
        for module in house.sources()
        for node in house.nodes_of(module.tree)
        if isinstance(node, ast.Attribute) and node.attr == "crc32"
    ]
    owner = "broker/warren_wire/checksum.py:"
    others = [each for each in findings if not each.startswith(owner)]
    house.report(others, "use warren_wire.checksum.crc32: the same values, several times as fast")
    assert len(findings) > len(others), "the owner has moved: name it here"
