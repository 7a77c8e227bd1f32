"""The tree as the house rules see it: files, their syntax trees, their floors."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.structure import ROOT, SOURCES, nodes_of, parsed

OTHERS = ("tests", "tools", "bench", "examples")

FLOORS: dict[str, int] = {
    "warren_wire": 0,
    "warren_wire.backups": 2,
    "warren_wire.tls": 2,
    "warren_wire.sessions": 2,
    "warren_raft": 0,
    "warren_raft.core": 1,
    "warren_raft.storage": 2,
    "warren_raft.runtime": 3,
    "warren_machines": 1,
    "warren_broker": 5,
    "warren_broker.access": 1,
    "warren_broker.settings": 3,
    "warren_broker.counting": 3,
    "warren_broker.tokens": 3,
    "warren_broker.tracing": 3,
    "warren_broker.cluster": 3,
    "warren_broker.transfers": 4,
    "warren_broker.broker": 4,
    "warren_broker.admin": 4,
    "warren_broker.clients": 4,
    "warren_broker.clients091": 4,
    "warren_broker.clients10": 4,
    "warren_broker.listeners": 4,
    "warren_broker.process": 4,
    "warren_broker.backup": 4,
    "warren_broker.metrics": 5,
    "warren_broker.http": 5,
    "warren": 4,
    "warren.cli": 5,
    "pyspark_warren": 5,
}
"""Folder → floor; the longest prefix counts. The table of architecture.md. Within a floor no
two folders import each other in a circle (test_cycles.py)."""
LOOSE = {
    "warren_wire.kernel.build_kernel": 5,
    "warren_wire.whole_file": 2,
    "warren_broker.config": 3,
    "warren.local": 5,
    "warren.uri": 1,
    "warren.errors": 1,
}
"""A build script, and modules in the root of a package that stand on another floor than it."""


@dataclass(frozen=True)
class Module:
    """One Python file of the tree."""

    path: Path
    name: str  # dotted; for files outside the packages: the path
    package: str  # the import package; "" outside
    lines: tuple[str, ...]
    tree: ast.Module

    @property
    def place(self) -> str:
        """Path from the root, for messages and the ratchet."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def floor(self) -> int:
        """The floor it stands on; files outside the packages stand above all."""
        return floor_of(self.name) if self.package else 9


def floor_of(name: str) -> int:
    """The floor of a dotted name, by its longest prefix in FLOORS."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in LOOSE or prefix in FLOORS:
            return LOOSE.get(prefix, FLOORS.get(prefix, 0))
    raise AssertionError(f"{name} has no floor: give it one in tests/tidy/house.py")


def load(path: Path, base: Path | None = None, package: str = "") -> Module:
    """Read and parse one file."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    if base is not None:
        name = ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
    return Module(path, name, package, tuple(text.splitlines()), parsed(path))


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from visiting, again and again, trees that stay to the end."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@cache
def sources() -> tuple[Module, ...]:
    """The files of the six packages, sorted by place."""
    found = []
    with uncollected():
        for package, base in SOURCES.items():
            for path in sorted((base / package).rglob("*.py")):
                found.append(load(path, base, package))
    return tuple(found)


@cache
def everything() -> tuple[Module, ...]:
    """The packages, the tests, the tools."""
    found = list(sources())
    with uncollected():
        for folder in OTHERS:
            found += [load(path) for path in sorted((ROOT / folder).rglob("*.py"))]
        found += [load(path) for path in sorted(ROOT.glob("*.py"))]
    return tuple(found)


def pure() -> tuple[Module, ...]:
    """The files on floors 0 and 1."""
    return tuple(module for module in sources() if module.floor <= 1)


def imports(module: Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, wherever it stands; `from a import b` gives a.b too."""
    for node in nodes_of(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parts = module.name.split(".")
                is_package = module.path.name == "__init__.py"
                kept = parts[: len(parts) - node.level + (1 if is_package else 0)]
                origin = ".".join([*kept, origin]).rstrip(".")
            for alias in node.names:
                yield node.lineno, f"{origin}.{alias.name}"


def functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method, nested ones too."""
    for node in nodes_of(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def report(findings: list[str], remedy: str) -> None:
    """Fail with all findings and what to do instead."""
    assert not findings, "\n  ".join([f"{len(findings)} found; {remedy}", *findings])
