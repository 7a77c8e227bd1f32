"""The tree runs with every Python from 3.11.0 on, and does the same with each.

Three means, of which each sees what the others cannot. mypy and ruff are set to 3.11, so that a
name, an argument or a syntax of a later minor version is an error there: the first test holds the
settings. What came with a micro version (3.11.4) counts as 3.11 for them: it is in the tables here.
What has the same name everywhere and does something else is in the last table.
"""

from __future__ import annotations

import ast
import configparser
import re
import tomllib
from collections.abc import Iterator

import pytest

from tidy import house
from tools import interpreter

TARFILE = (
    *("data_filter", "tar_filter", "fully_trusted_filter", "FilterError", "AbsolutePathError"),
    *("OutsideDestinationError", "SpecialFileError", "AbsoluteLinkError"),
    "LinkOutsideDestinationError",
)
LATER_NAMES = {
    **{f"tarfile.{name}": "3.11.4" for name in TARFILE},
    "tarfile.LinkFallbackError": "3.11.13",
    "os.path.ALLOW_MISSING": "3.11.13",
}
"""Names of the standard library that 3.11.0 does not have and mypy takes for 3.11's → since when.
Up to 3.11.7 found by comparing all public names and arguments of 3.11.2's and 3.11.7's library, in
which enum, pydoc and ctypes.macholib have a few more that nothing here could want."""
LATER_ARGUMENTS = {
    ("extract", "filter"): "3.11.4",
    ("extractall", "filter"): "3.11.4",
    ("unpack_archive", "filter"): "3.11.4",
    ("getaddresses", "strict"): "3.11.10",
    ("parseaddr", "strict"): "3.11.10",
}
"""(function, argument) of the same kind."""
UNLIKE = {
    "ssl.create_default_context": (
        "accepts other certificates since 3.13: warren_wire.tls.contexts."
        "calling_context, or warren.client_tls.client_context for a client"
    ),
}
"""Functions that do different things with different Pythons → what the packages call instead."""
LAST = {name.rpartition(".")[2] for name in (*LATER_NAMES, *UNLIKE)}


def test_the_checkers_look_with_the_eyes_of_the_oldest() -> None:
    oldest = ".".join(map(str, interpreter.PYTHON_MIN))
    project = tomllib.loads((house.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    of_tests = configparser.ConfigParser()
    of_tests.read(house.ROOT / "tests" / "mypy.ini")
    assert project["project"]["requires-python"] == f">={oldest}"
    assert project["tool"]["mypy"]["python_version"] == oldest
    assert project["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert of_tests["mypy"]["python_version"] == oldest
    readme = (house.ROOT / "README.md").read_text(encoding="utf-8")
    assert f"Python {oldest} or newer" in readme


def test_the_classifiers_name_the_versions_that_build_py_looks_for() -> None:
    project = tomllib.loads((house.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = re.findall(r"Python :: 3\.(\d+)", "\n".join(project["project"]["classifiers"]))
    assert sorted(map(int, named)) == sorted(interpreter.MINORS)


def test_nothing_newer_than_the_oldest_is_used() -> None:
    findings = [
        f"{module.place}:{line}: {said}"
        for module in house.everything()
        for line, said in later(module.tree)
    ]
    house.report(findings, "Python 3.11.0 lacks it: do without, or ask getattr for it")


def test_the_packages_do_the_same_with_every_python() -> None:
    findings = [
        f"{module.place}:{line}: {name}: {UNLIKE[name]}"
        for module in house.sources()
        for line, name in named(module.tree)
        if name in UNLIKE
    ]
    house.report(findings, "it depends on the version of Python")


@pytest.mark.parametrize(
    ("text", "finds"),
    [
        ("import tarfile\ntarfile.open(a).extractall(b, filter='data')", "extractall(filter=)"),
        ("import shutil\nshutil.unpack_archive(a, b, filter='data')", "unpack_archive(filter=)"),
        ("import tarfile\nx = tarfile.data_filter", "tarfile.data_filter"),
        ("import tarfile as t\nx = t.data_filter", "tarfile.data_filter"),
        ("from tarfile import data_filter as d", "tarfile.data_filter"),
        ("import os.path\nos.path.realpath(a, strict=os.path.ALLOW_MISSING)", "ALLOW_MISSING"),
        ("import tarfile\nx = getattr(tarfile, 'data_filter', None)", None),
        ("import tarfile\ntarfile.open(a).add(b, filter=c)", None),
        ("import zipfile\nzipfile.ZipFile(a).extractall(b)", None),
    ],
)
def test_what_is_newer_is_found(text: str, finds: str | None) -> None:
    found = [said for _, said in later(ast.parse(text))]
    assert (len(found) == 1 and finds in found[0]) if finds else not found, found


def later(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what) of each use of the tables of what came after 3.11.0."""
    for line, name in named(tree):
        if name in LATER_NAMES:
            yield line, f"{name} came with {LATER_NAMES[name]}"
    for node in house.nodes_of(tree):
        if isinstance(node, ast.Call) and node.keywords:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            for each in node.keywords:
                since = LATER_ARGUMENTS.get((called, each.arg or ""))
                if since is not None:
                    yield node.lineno, f"{called}({each.arg}=) came with {since}"


def named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, full name) of each name of the tables that is imported, or read from a module."""
    modules: dict[str, str] = {}
    for node in house.nodes_of(tree):
        if isinstance(node, ast.Import):
            modules |= {alias.asname: alias.name for alias in node.names if alias.asname}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                if alias.name in LAST:
                    yield node.lineno, f"{node.module}.{alias.name}"
    for node in house.nodes_of(tree):
        if isinstance(node, ast.Attribute) and node.attr in LAST:
            first, _, rest = ast.unparse(node).partition(".")
            yield node.lineno, f"{modules.get(first, first)}.{rest}"
