"""Imports into definitions in memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from machines.metadata.world import World
from warren_broker.transfers.shovel.sealed_uris import UriSeal
from warren_machines.definition_files.check import check_import
from warren_machines.definition_files.document import parse
from warren_machines.definition_files.export import Exported, export
from warren_machines.metadata.commands import DeclareQueue, ImportDefinitions
from warren_machines.metadata.policy_index import PolicyIndex
from warren_machines.steps import whole
from warren_wire.admin.definitions import ImportReport
from warren_wire.arguments import QueueDeclaration, QueueDefaults

SAMPLES = Path(__file__).with_name("samples")
DEFAULTS = QueueDefaults()
SEAL = UriSeal(lambda: bytes(64))


class Around:
    """One node that places everything on itself; see `plan.Surroundings`."""

    nodes_count = 1
    defaults = DEFAULTS
    own_exchanges = (("/", "amq.rabbitmq.event"), ("v", "amq.rabbitmq.log"))

    def queue_command(self, checked: QueueDeclaration, policies: PolicyIndex) -> DeclareQueue:
        initial = policies.apply(checked.config, checked.arguments)
        return DeclareQueue(
            checked.config,
            checked.arguments,
            ("a",),
            "a",
            initial=None if initial == checked.config else initial,
            by_default=checked.by_default,
        )

    def place_store(self) -> tuple[tuple[str, ...], str]:
        return ("a",), "a"

    def hash_password(self, password: str) -> str:
        return f"hash of {password}"

    sealed = staticmethod(SEAL.sealed)


def load(
    world: World,
    document: dict[str, Any] | bytes,
    vhost: str | None = None,
    importer: str | None = None,
) -> ImportReport:
    """Check and import; refusals are raised."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    checked = whole(check_import(parse(data), world.state, Around(), vhost, importer))
    world.do(ImportDefinitions(checked.commands))
    return checked.report


def exported(world: World, vhost: str | None = None) -> Exported:
    """Everything, or a vhost's objects."""
    return export(world.state, "cluster", "1", vhost, SEAL.opened)


def sample(version: str) -> bytes:
    """What a real RabbitMQ server exported."""
    return (SAMPLES / f"rabbitmq-{version}.json").read_bytes()


def not_honoured(report: ImportReport) -> dict[str, list[str]]:
    """Objects with their keys that are not honoured."""
    found: dict[str, list[str]] = {}
    for one in report.not_honoured:
        found.setdefault(one.object, []).append(one.key)
    return found
