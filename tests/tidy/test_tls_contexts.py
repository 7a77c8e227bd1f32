"""Contexts of TLS are made in one module, which sets what depends on Python otherwise."""

from __future__ import annotations

import ast

from tests.tidy import house

HOME = "warren_wire.tls.contexts"
MAKERS = ("SSLContext", "create_default_context", "_create_unverified_context", "wrap_socket")


def test_contexts_are_made_in_one_module() -> None:
    found = []
    for module in house.sources():
        if module.name == HOME:
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of = node.func.value
            if node.func.attr in MAKERS and isinstance(of, ast.Name) and of.id == "ssl":
                found.append(f"{module.place}:{node.lineno}")
    house.report(found, "make it in warren_wire.tls.contexts")
