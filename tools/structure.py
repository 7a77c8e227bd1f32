"""Measurements of the source tree: imports of packages, cycles, names defined more than once.

python3 build.py structure           counts, cycles, names
    python3 build.py structure --walks   files that a publish, an ack, a claim and a stage enter
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {
    "warren_wire": ROOT / "broker",
    "warren_raft": ROOT / "raft",
    "warren_machines": ROOT / "broker",
    "warren_broker": ROOT / "broker",
    "warren": ROOT / "python",
    "pyspark_warren": ROOT / "connector",
}
KNOWS = {
    "warren_wire": {"warren_wire"},
    "warren_raft": {"warren_raft", "warren_wire"},
    "warren_machines": {"warren_machines", "warren_raft", "warren_wire"},
    "warren_broker": {"warren_broker", "warren_machines", "warren_raft", "warren_wire"},
    "warren": {"warren", "warren_wire"},
    "pyspark_warren": {"pyspark_warren", "warren", "warren_wire"},
}
"""Which package may know which."""
WITH_BROKER = ("warren.cli.rabbitmq_source",)
"""Modules of the client that need the broker's packages, and say so: no executor has them."""
Graph = Mapping[str, set[str]]


def modules() -> dict[str, Path]:
    """Map the dotted names of the six packages to their files."""
    found = {}
    for package, base in SOURCES.items():
        for path in sorted((base / package).rglob("*.py")):
            dotted = ".".join(path.relative_to(base).with_suffix("").parts)
            found[dotted.removesuffix(".__init__")] = path
    return found


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return the nodes of a tree in the order of `ast.walk`, which is slow: once per tree."""
    return tuple(ast.walk(tree))


def imports(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Return the modules of the tree that a module imports, at any depth of its code."""
    for node in nodes_of(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                depth = node.level - (1 if path.name == "__init__.py" else 0)
                parts = name.split(".")
                origin = ".".join([*parts[: len(parts) - depth], *([origin] if origin else [])])
            for alias in node.names:
                full = f"{origin}.{alias.name}"
                if full in known:
                    yield full
                elif origin in known:
                    yield origin


def graph(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Map each module to the modules it imports; imports under TYPE_CHECKING count."""
    return {
        name: {target for target in imports(name, path, known) if target != name}
        for name, path in known.items()
    }


def cycles(edges: Graph) -> list[list[str]]:
    """Return the strongly connected components of two or more modules, sorted (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        for target in sorted(edges[name]):
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in on_stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            component = []
            while True:
                member = stack.pop()
                on_stack.discard(member)
                component.append(member)
                if member == name:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10_000)
    for name in sorted(edges):
        if name not in index:
            visit(name)
    return sorted(found)


def first_folder(name: str) -> str:
    """Return the package of a module: the first folder of its import package, or itself there."""
    return ".".join(name.split(".")[:2])


def package_cycles() -> list[list[str]]:
    """Return the packages that import each other in a circle."""
    between: dict[str, set[str]] = defaultdict(set)
    for name, targets in graph(modules()).items():
        here = first_folder(name)
        between[here] |= {first_folder(target) for target in targets} - {here, *SOURCES}
        for target in targets:
            between[first_folder(target)] |= set()
    return cycles(between)


def upward(edges: Graph) -> list[str]:
    """Return the imports of a package that the importing one may not know."""
    return [
        f"{name} imports {target}"
        for name, targets in sorted(edges.items())
        for target in sorted(targets)
        if target.split(".")[0] not in KNOWS[name.split(".")[0]] and name not in WITH_BROKER
    ]


def class_names(known: Mapping[str, Path]) -> dict[str, list[str]]:
    """Map class names that are defined more than once to the modules that define them."""
    places = defaultdict(list)
    for name, path in known.items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def package_of(name: str, known: Mapping[str, Path]) -> str:
    """Return the package of a module."""
    return name if known[name].name == "__init__.py" else name.rsplit(".", 1)[0]


def drawing(edges: Graph, known: Mapping[str, Path]) -> str:
    """Draw packages and imports as a Mermaid flowchart; numbers are pairs of modules."""
    sizes: Counter[str] = Counter()
    for name, path in known.items():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        sizes[package_of(name, known)] += lines
    arrows: Counter[tuple[str, str]] = Counter()
    for name, targets in edges.items():
        for target in targets:
            pair = (package_of(name, known), package_of(target, known))
            if pair[0] != pair[1]:
                arrows[pair] += 1
    text = ["flowchart TD"]
    text += [
        f'  {package.replace(".", "_")}["{package}<br/>{size} lines"]'
        for package, size in sorted(sizes.items())
    ]
    text += [
        f"  {a.replace('.', '_')} -->|{count}| {b.replace('.', '_')}"
        for (a, b), count in sorted(arrows.items())
    ]
    return "\n".join(text)


def report(draw: bool) -> None:
    """Print the measurements."""
    known = modules()
    edges = graph(known)
    found = cycles(edges)
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in known.values())
    print(f"modules: {len(known)}, product lines: {lines:,}")
    print(f"cycles between packages: {len(package_cycles())}")
    print(f"imports upward between packages: {len(upward(edges))}")
    print(f"import cycles: {len(found)}, of sizes {[len(one) for one in found]}")
    for one in found:
        print("  " + " ".join(one))
    doubles = class_names(known)
    print(f"class names defined more than once: {len(doubles)}")
    print("  " + " ".join(f"{name}({len(where)})" for name, where in doubles.items()))
    leaves = Counter(
        name.rsplit(".", 1)[-1] for name, path in known.items() if path.name != "__init__.py"
    )
    twice = {leaf: count for leaf, count in sorted(leaves.items()) if count > 1}
    print(f"module names used more than once: {len(twice)}")
    print("  " + " ".join(f"{leaf}({count})" for leaf, count in twice.items()))
    if draw:
        print(drawing(edges, known))


if __name__ == "__main__":
    report(draw="--draw" in sys.argv[1:])
