"""What an import of a definitions file would refuse, found without a cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from warren_broker.broker.boot_definitions import DefinitionsUnusable, read_definitions
from warren_machines.definition_files.check import check_import
from warren_machines.metadata import commands
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.policy_index import PolicyIndex
from warren_machines.metadata.records import Parameter, User, Vhost
from warren_machines.metadata.state import MetadataState
from warren_machines.metadata.vhosts_and_users import ADMINISTRATOR, bootstrap
from warren_machines.steps import whole
from warren_raft.machine import Meta
from warren_wire import errors
from warren_wire.admin.definitions import ImportReport
from warren_wire.arguments import QueueDeclaration, QueueDefaults

_FIRST_NODE: Final = "a"


class _NewNode:
    """The only node of a new cluster; see `ImportSurroundings`."""

    nodes_count = 1
    defaults = QueueDefaults()
    own_exchanges: Collection[tuple[str, str]] = ()

    def queue_command(
        self, checked: QueueDeclaration, policies: PolicyIndex
    ) -> commands.DeclareQueue:
        initial = policies.apply(checked.config, checked.arguments)
        return commands.DeclareQueue(
            checked.config,
            checked.arguments,
            (_FIRST_NODE,),
            _FIRST_NODE,
            initial=None if initial == checked.config else initial,
            by_default=checked.by_default,
        )

    def place_store(self) -> tuple[tuple[str, ...], str]:
        return (_FIRST_NODE,), _FIRST_NODE

    def hash_password(self, password: str) -> str:
        return ""

    def sealed(self, parameter: Parameter) -> Parameter:
        return parameter


def check_definitions(path: Path) -> tuple[list[str], list[str]]:
    """Return why a new cluster would refuse a file or directory, and what it would leave out."""
    try:
        document, _ = read_definitions(path)
        state = MetadataState()
        first = commands.Bootstrap(Vhost("/"), User("guest", "", (ADMINISTRATOR,)))
        bootstrap(MetadataContext(Meta(0, 0, 0), state, 0, _FIRST_NODE), first)
        report = whole(check_import(document, state, _NewNode())).report
    except DefinitionsUnusable as error:
        return [str(error).removeprefix("load_definitions=")], []
    except errors.Refusal as refusal:
        return [f"{path}: {refusal.detail}"], []
    return [], list(_left_out(report))


def _left_out(report: ImportReport) -> Iterator[str]:
    for one in report.not_honoured:
        yield f"{one.object}: {f'{one.key}: ' if one.key else ''}{one.reason}"
    if report.not_honoured_count > len(report.not_honoured):
        yield f"{report.not_honoured_count - len(report.not_honoured):,} more are not shown"
