"""What is written for the reader."""

from __future__ import annotations

import ast
import re
from functools import cache

from tidy import house
from tidy.ratchet import LONG_TEST_NAMES

TEST_NAME_WORDS_MAX = 10


def test_every_module_says_what_it_is() -> None:
    findings = []
    for module in house.everything():
        text = ast.get_docstring(module.tree) or ""
        first = re.split(r"[.,:;]\s|[.,:;]$|\n\n", text, maxsplit=1)[0].replace("\n", " ")
        if not module.lines:
            continue  # an empty __init__.py
        if not first:
            findings.append(f"{module.place}: no docstring")
    house.report(findings, "say in one sentence what the module is for: one purpose per module")


def public(name: str) -> bool:
    """Not underscored; `__init__` and its like are described by their class."""
    return not name.startswith("_")


@cache
def documented_elsewhere() -> frozenset[str]:
    """Methods that a protocol or a base class describes: its implementations need not."""
    found = set()
    for module in house.sources():
        for node in house.nodes_of(module.tree):
            if isinstance(node, ast.ClassDef) and is_contract(node):
                found |= {
                    item.name
                    for item in node.body
                    if isinstance(item, ast.FunctionDef) and ast.get_docstring(item)
                }
    return frozenset(found)


def is_contract(node: ast.ClassDef) -> bool:
    """A Protocol or an abstract class."""
    names = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
    return bool(names & {"Protocol", "ABC"})


def is_contract_of_others(node: ast.ClassDef) -> bool:
    """A class that a library calls: pyspark's and Proton's documentation describe its methods."""
    return any(
        re.search(
            r"DataSource|DataSourceReader|StreamReader|Writer|Handler|Listener|Protocol$",
            ast.unparse(base),
        )
        for base in node.bases
    )


def is_setter(item: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """The other half of a property, or an overload: described at the first."""
    return any(re.search(r"\.setter$|overload$", ast.unparse(mark)) for mark in item.decorator_list)


def undocumented(module: house.Module) -> list[str]:
    """Public classes, functions and methods without a docstring."""
    findings = []
    for node in module.tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if public(node.name) and not ast.get_docstring(node):
            findings.append(f"{module.place}:{node.lineno}: {node.name}")
        if isinstance(node, ast.ClassDef) and public(node.name) and not is_contract_of_others(node):
            findings += [
                f"{module.place}:{item.lineno}: {node.name}.{item.name}"
                for item in node.body
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
                and public(item.name)
                and not ast.get_docstring(item)
                and not is_setter(item)
                and item.name not in documented_elsewhere()
            ]
    return findings


def test_public_things_are_described() -> None:
    findings = [finding for module in house.sources() for finding in undocumented(module)]
    house.report(findings, "say shape, unit, bounds, failure in a line or two")


def test_nothing_is_left_undone() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
    findings = [
        f"{module.place}:{number}: {line.strip()[:80]}"
        for module in house.sources()
        for number, line in enumerate(module.lines, 1)
        if words.search(line)
    ]
    house.report(findings, "do it, or refuse it with a typed error that says what is missing")


def test_the_formatter_is_nowhere_switched_off() -> None:
    switch = re.compile(r"#\s*" + r"fmt:\s*(off|skip)\b")
    findings = [
        f"{module.place}:{number}: {line.strip()[:80]}"
        for module in house.everything()
        for number, line in enumerate(module.lines, 1)
        if switch.search(line)
    ]
    house.report(findings, "let `ruff format` lay it out")


def test_names_of_tests_are_short() -> None:
    long = [
        f"{module.place}: {function.name}"
        for module in house.everything()
        if module.path.name.startswith("test_")
        for function in house.functions(module)
        if function.name.startswith("test_") and function.name.count("_") > TEST_NAME_WORDS_MAX
    ]
    remedy = f"name it in {TEST_NAME_WORDS_MAX} words; what else is to be said is its docstring"
    house.report(long if len(long) > LONG_TEST_NAMES else [], remedy)
