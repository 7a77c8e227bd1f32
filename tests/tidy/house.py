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
    "warren_raft": 0,
    "warren_raft.core": 1,
    "warren_raft.storage": 2,
    "warren_raft.runtime": 3,
    "warren_raft.tls_contexts": 3,
    "warren_broker": 0,
    "warren_broker.kernel": 0,
    "warren_broker.kernel.build_kernel": 5,
    "warren_broker.amqp091": 1,
    "warren_broker.amqp091.wire": 0,
    "warren_broker.amqp10": 1,
    "warren_broker.amqp10.addresses": 0,
    "warren_broker.amqp10.wire": 0,
    "warren_broker.amqp10.caller": 4,
    "warren_broker.access": 1,
    "warren_broker.permissions": 1,
    "warren_broker.token_rights": 1,
    "warren_broker.token_check": 3,
    "warren_broker.token_keys": 3,
    "warren_broker.token_logins": 3,
    "warren_broker.key_fetch": 3,
    "warren_broker.http_exchange": 3,
    "warren_broker.token_settings": 3,
    "warren_broker.message_checks": 1,
    "warren_broker.management": 1,
    "warren_broker.management.membership": 0,
    "warren_broker.management.user_values": 0,
    "warren_broker.management.policy_values": 0,
    "warren_broker.management.limit_values": 0,
    "warren_broker.management.queue_values": 0,
    "warren_broker.management.limit_service": 4,
    "warren_broker.management.definition_values": 0,
    "warren_broker.management.queue_service": 4,
    "warren_broker.management.claim_service": 4,
    "warren_broker.management.member_service": 4,
    "warren_broker.management.user_service": 4,
    "warren_broker.management.delayed_service": 4,
    "warren_broker.management.relay_service": 4,
    "warren_broker.management.sink_service": 4,
    "warren_broker.management.policy_service": 4,
    "warren_broker.management.definition_service": 4,
    "warren_broker.management.shovel_values": 0,
    "warren_broker.management.health_values": 0,
    "warren_broker.management.connection_values": 0,
    "warren_broker.management.connection_service": 4,
    "warren_broker.management.total_values": 0,
    "warren_broker.management.total_service": 4,
    "warren_broker.management.statistic_values": 0,
    "warren_broker.management.statistic_service": 4,
    "warren_broker.management.health_service": 4,
    "warren_broker.management.shovel_service": 4,
    "warren_broker.management.decision_service": 4,
    "warren_broker.message_filter.evaluator": 1,
    "warren_broker.queue": 1,
    "warren_broker.queue.command_base": 0,
    "warren_broker.queue.commands": 0,
    "warren_broker.queue.delay_commands": 0,
    "warren_broker.queue.decision_commands": 0,
    "warren_broker.queue.modify_command": 0,
    "warren_broker.queue.forget_command": 0,
    "warren_broker.queue.describe_command": 0,
    "warren_broker.queue.give_up_command": 0,
    "warren_broker.queue.part_rules": 0,
    "warren_broker.queue.relay_commands": 0,
    "warren_broker.queue.stage1_commands": 0,
    "warren_broker.queue.filter_commands": 0,
    "warren_broker.queue.effects": 0,
    "warren_broker.queue.config": 0,
    "warren_broker.metadata": 1,
    "warren_broker.definition_files": 1,
    "warren_broker.routing": 1,
    "warren_broker.federation": 3,
    "warren_broker.federation.upstreams": 1,
    "warren_broker.federation.exchange_rules": 1,
    "warren_broker.federation.upstream_exchange": 4,
    "warren_broker.shovel": 3,
    "warren_broker.shovel.uris": 0,
    "warren_broker.shovel.definition": 0,
    "warren_broker.shovel.static": 1,
    "warren_broker.shovel.static_settings": 1,
    "warren_broker.shovel.ledger": 1,
    "warren_broker.shovel.sections": 1,
    "warren_broker.shovel.received": 4,
    "warren_broker.shovel.stamps": 4,
    "warren_broker.shovel.ends": 4,
    "warren_broker.shovel.endpoint": 4,
    "warren_broker.shovel.source_consumer": 4,
    "warren_broker.shovel.end091": 4,
    "warren_broker.shovel.connection10": 4,
    "warren_broker.shovel.end10": 4,
    "warren_broker.shovel.transfer": 4,
    "warren_broker.shovel.worker": 5,
    "warren_broker.cluster": 3,
    "warren_broker.server": 4,
    "warren_broker.config": 3,
    "warren_broker.open_secrets": 3,
    "warren_broker.certificate_ends": 3,
    "warren_broker.prometheus": 4,
    "warren_broker.prometheus.settings": 3,
    "warren_broker.http_api": 5,
    "warren_broker.http_api.settings": 3,
    "warren_broker.http_api.frames": 1,
    "warren_broker.http_api.replies": 1,
    "warren_broker.http_api.listing": 1,
    "warren_broker.http_api.binding_keys": 1,
    "warren_broker.http_api.gateway": 4,
    "warren_broker.logs": 4,
    "warren_broker.node": 5,
    "warren_broker.__main__": 5,
    "warren": 4,
    "warren.uri": 1,
    "warren.errors": 1,
    "warren.cli": 5,
    "warren.local": 5,
    "pyspark_warren": 5,
    "pyspark_warren.offset": 1,
    "pyspark_warren.plan": 1,
    "pyspark_warren.rows": 1,
    "pyspark_warren.columns": 1,
    "pyspark_warren.conditions": 1,
    "pyspark_warren.options": 1,
    "pyspark_warren.option_spec": 1,
    "pyspark_warren.option_table": 1,
    "pyspark_warren.option_values": 1,
    "pyspark_warren.connection_options": 1,
    "pyspark_warren.oauth_options": 1,
    "pyspark_warren.claim_options": 1,
    "pyspark_warren.amqp_options": 1,
    "pyspark_warren.browse_options": 1,
    "pyspark_warren.failing_options": 1,
    "pyspark_warren.filter_options": 1,
    "pyspark_warren.sql_rows": 1,
    "pyspark_warren.sink_options": 1,
    "pyspark_warren.share": 1,
    "pyspark_warren.errors": 1,
    "pyspark_warren.properties": 1,
    "pyspark_warren.arrow_values": 1,
    "pyspark_warren.encode": 1,
    "pyspark_warren.decode": 1,
    "pyspark_warren.blocks": 1,
    "pyspark_warren.sink_schema": 1,
    "pyspark_warren.amqp.recognise": 1,
    "pyspark_warren.amqp.plan": 1,
    "pyspark_warren.amqp.decided": 1,
    "pyspark_warren.amqp.search": 1,
    "pyspark_warren.amqp.spool_offset": 1,
    "pyspark_warren.amqp.spool.layout": 1,
    "pyspark_warren.amqp.spool.rows": 1,
}
"""Module or package → floor; the longest prefix counts. The table of docs/architecture.md."""

MAY_IMPORT = {
    "warren_raft": {"warren_raft"},
    "warren_broker": {"warren_broker", "warren_raft"},
    "warren": {"warren", "warren_broker"},
    "pyspark_warren": {"pyspark_warren", "warren", "warren_broker"},
}
"""Which package may know which; of warren_broker the client side may know floor 0 only."""
SHARED = ("warren_raft.tls_contexts", "warren_broker.http_exchange")
"""Modules that every package may know: what is the same for nodes and clients, by one owner."""


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
        if prefix in FLOORS:
            return FLOORS[prefix]
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
    """The files of the four packages, sorted by place."""
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
