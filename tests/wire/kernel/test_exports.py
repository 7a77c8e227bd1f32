"""The kernel's stub file and what its package binds at run time are the same."""

from __future__ import annotations

import ast
from pathlib import Path

from warren_wire import kernel


def test_the_stub_names_what_the_package_exports() -> None:
    tree = ast.parse(Path(str(kernel.__file__)).with_suffix(".pyi").read_text(encoding="utf-8"))
    stated = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("warren_wire")
        for alias in node.names
    }
    tables = (kernel._INTERPRETED, kernel._COMPILED)  # type: ignore[attr-defined]
    assert stated.keys() == {
        name for table in tables for names in table.values() for name in names.split()
    }
    assert all(hasattr(kernel, name) for name in stated)
    (shape,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    fields = [
        one.target.id
        for one in shape.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]
    assert fields == list(kernel.Kernel._fields)
