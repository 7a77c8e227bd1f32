"""No error is swallowed; no test sleeps instead of waiting."""

from __future__ import annotations

import ast

from tidy import house
from tidy.ratchet import over

RIMS = {
    "warren_broker.clients.connection_faults",
    "warren_broker.cluster.leader.set_aside",
    "warren_broker.cluster.turn_shares",
}
"""What is caught there ends something: one client's connection, one message's way, the routing of
one run, as floor 5 ends a process."""


def catches_all(handler: ast.ExceptHandler) -> bool:
    """`except:`, `except Exception`, `except BaseException`."""
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & {"Exception", "BaseException"})


def test_nothing_is_swallowed() -> None:
    measured: dict[str, int] = {}
    for module in house.sources():
        if module.floor == 5 or module.name in RIMS:
            continue  # the rim of a process, or of a connection
        for node in house.nodes_of(module.tree):
            if isinstance(node, ast.ExceptHandler) and catches_all(node):
                if not any(isinstance(inner, ast.Raise) for inner in ast.walk(node)):
                    measured[module.place] = measured.get(module.place, 0) + 1
    house.report(
        over("swallowed", 0, measured),
        "catch the type that you can do something about; let the rest travel",
    )


def test_tests_wait_for_something() -> None:
    findings = []
    for module in house.everything():
        if not module.path.name.startswith("test_"):
            continue  # a fake or a sample program may take its time
        nodes = house.nodes_of(module.tree)
        sleeps = [node for node in nodes if isinstance(node, ast.expr) and is_sleep(node)]
        if not sleeps:
            continue
        looped = {
            inner
            for node in nodes
            if isinstance(node, ast.While | ast.For | ast.AsyncFor)
            for inner in ast.walk(node)
        }
        findings += [f"{module.place}:{node.lineno}" for node in sleeps if node not in looped]
    house.report(findings, "poll a condition with a deadline; a bare sleep is slow or flaky")


def is_sleep(node: ast.AST) -> bool:
    """A call of time.sleep or asyncio.sleep with more than nothing."""
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Name(id="sleep"):
            pass
        case ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep"):
            pass
        case _:
            return False
    argument = node.args[0] if node.args else None
    return not (isinstance(argument, ast.Constant) and argument.value == 0)
