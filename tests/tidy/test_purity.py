"""Floors 0 and 1 decide; they do nothing."""

from __future__ import annotations

import ast

from tidy import house

BANNED_MODULES = {
    "time": "take the time as an argument (Meta.time_ms, now_ms)",
    "random": "take a seeded generator or the drawn number as an argument",
    "secrets": "take the drawn bytes as an argument",
    "uuid": "take the drawn id as an argument",
    "socket": "take bytes and return bytes; listeners/ owns the sockets",
    "ssl": "take bytes and return bytes; listeners/ owns the sockets",
    "select": "return what is to be done as a value; runtime/ owns the loop",
    "selectors": "return what is to be done as a value; runtime/ owns the loop",
    "asyncio": "return what is to be done as a value; runtime/ owns the loop",
    "concurrent": "return what is to be done as a value; runtime/ owns the threads",
    "threading": "return what is to be done as a value; runtime/ owns the threads",
    "multiprocessing": "return what is to be done as a value; the shell starts processes",
    "subprocess": "return what is to be done as a value; the shell starts processes",
    "os": "take the value as an argument; storage/ owns the files, config the environment",
    "io": "take bytes and return bytes",
    "pathlib": "take bytes and return bytes; storage/ owns the files",
    "tempfile": "take bytes and return bytes; storage/ owns the files",
    "shutil": "take bytes and return bytes; storage/ owns the files",
    "logging": "return what happened as a value; the shell writes the log",
}
ALLOWED = {("warren_wire.kernel", "os")}
"""The choice between the compiled and the interpreted kernel, made once, when it is imported."""
BANNED_CALLS = {
    "Random": "take a seeded generator as an argument",
    "open": "take bytes and return bytes; storage/ owns the files",
    "print": "return what happened as a value",
    "input": "take it as an argument",
    "hash": "differs between interpreters: use warren_wire.checksum.crc32 or a digest",
    "id": "differs between members: name the thing",
    "float": "rounding may differ and hides units: use integers with a unit",
}
ALLOWED_ONCE = {("broker/warren_wire/kernel/__init__.py", "os")}
"""WARREN_KERNEL is read when the package is imported: which of two kernels that give the same
results runs. Nothing that is decided depends on it."""
CLOCKS = {"now", "utcnow", "today"}


def test_no_outside_world() -> None:
    findings = []
    for module in house.pure():
        for line, name in house.imports(module):
            top = name.split(".")[0]
            if (module.place, top) in ALLOWED_ONCE:
                continue
            if top in BANNED_MODULES and not as_a_type(module, name):
                findings.append(f"{module.place}:{line}: {top}: {BANNED_MODULES[top]}")
    house.report(findings, "floors 0 and 1 import no clock, chance, file, socket, thread or loop")


def as_a_type(module: house.Module, name: str) -> bool:
    """`random.Random` as the type of a seeded generator that is handed in."""
    if name == "random.Random" or (module.name, name) in ALLOWED:
        return True
    used = {
        node.attr
        for node in house.nodes_of(module.tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "random"
    }
    return name == "random" and used == {"Random"}


def test_no_async() -> None:
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    findings = [
        f"{module.place}:{node.lineno}"
        for module in house.pure()
        for node in house.nodes_of(module.tree)
        if isinstance(node, kinds)
    ]
    house.report(findings, "no `async` on floors 0 and 1: return what is to be done as a value")


def test_no_impure_calls() -> None:
    findings = []
    for module in house.pure():
        for node in house.nodes_of(module.tree):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).removeprefix("random.")
            if called in BANNED_CALLS and not may_call(module, called, node):
                name = called
                findings.append(f"{module.place}:{node.lineno}: {name}(): {BANNED_CALLS[name]}")
            if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCKS:
                findings.append(
                    f"{module.place}:{node.lineno}: .{node.func.attr}(): take the time "
                    "as an argument"
                )
    house.report(findings, "floors 0 and 1 are functions of their arguments")


def may_call(module: house.Module, name: str, call: ast.Call) -> bool:
    """What is replicated or counted may not be a float; values of protocols, options, rows may."""
    exact = ("warren_raft", "warren_machines")
    if name == "float":
        return not module.name.startswith(exact)
    return name == "hash" and any(
        function.name == "__hash__" and call in list(ast.walk(function))
        for function in house.functions(module)
    )


def test_no_set_order() -> None:
    """What a set yields depends on the interpreter's hash seed."""
    findings = []
    for module in house.pure():
        for node in house.nodes_of(module.tree):
            loops = [node.iter] if isinstance(node, ast.For | ast.comprehension) else []
            for loop in loops:
                if isinstance(loop, ast.Set | ast.SetComp) or is_set_call(loop):
                    findings.append(f"{module.place}:{loop.lineno}")
    house.report(findings, "iterate over sorted(...), or keep a dict: its order is the insertion's")


def is_set_call(node: ast.expr) -> bool:
    """`set(...)` or `frozenset(...)`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("set", "frozenset")
    )
