"""Imports of definitions by this node: checked as a whole, submitted as one command.

The check takes place on a copy of the definitions that this node has applied. What changes between
that and the command's turn in the log is found when it is applied: then the import is refused,
and has changed nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from warren_broker.cluster.definitions import Definitions, Done
from warren_broker.cluster.leader.letter_forwarder import warn_of_fallback
from warren_broker.cluster.membership.mirror_follower import QueueCommands
from warren_broker.cluster.membership.placement import Placement
from warren_broker.transfers.shovel.sealed_uris import UriSeal
from warren_machines.definition_files.check import CheckedImport, check_import
from warren_machines.definition_files.document import Document
from warren_machines.metadata import passwords
from warren_machines.metadata.codec import encode_submission
from warren_machines.metadata.commands import DeclareQueue, ImportDefinitions
from warren_machines.metadata.policy_index import PolicyIndex
from warren_machines.steps import Steps, Work
from warren_raft.versions import NEWEST
from warren_wire import errors
from warren_wire.arguments import QueueDeclaration, QueueDefaults

ENTRY_BYTES_MAX: Final = 64 * 1024 * 1024
"""Size of the log entry of an import."""
BALANCED: Final = "balanced"


class ImportingNode:
    """What this node adds to an import; see `definition_files.import_plan.Surroundings`.

    Leaders are spread over the nodes, unless an argument or policy says otherwise: there is no
    client that the queues should be near to.
    """

    def __init__(
        self,
        definitions: Definitions,
        placement: Placement,
        queue_commands: QueueCommands,
        defaults: QueueDefaults,
        own_exchanges: Collection[tuple[str, str]],
        seal: UriSeal,
    ) -> None:
        self.own_exchanges = own_exchanges
        self.nodes_count = len(definitions.nodes())
        self.sealed = seal.sealed
        self._placement = placement
        self._queue_commands = queue_commands
        self.defaults = msgspec.structs.replace(defaults, leader_locator=BALANCED)
        self._leaders = placement.leader_counts()

    def queue_command(self, checked: QueueDeclaration, policies: PolicyIndex) -> DeclareQueue:
        """Return the command that declares a queue under these policies."""
        return self._queue_commands.declaration(checked, policies, leaders=self._leaders)

    def place_store(self) -> tuple[tuple[str, ...], str]:
        """Return the nodes and the first leader of an exchange's store."""
        nodes = self._placement.members(self.defaults.group_size)
        return nodes, self._placement.leader(nodes, BALANCED, self._leaders)

    def hash_password(self, password: str) -> str:
        """Return a new hash of a password."""
        return passwords.hash_password(password, os.urandom(passwords.SALT_BYTES))


class DefinitionImports:
    """Checks and submits imports.

    around  returns what this node adds to an import that begins now
    """

    def __init__(self, definitions: Definitions, around: Callable[[], ImportingNode]) -> None:
        self._definitions = definitions
        self._around = around

    def check(
        self,
        document: Document,
        vhost: str | None = None,
        importer: str | None = None,
        steps: Steps | None = None,
    ) -> Work[CheckedImport]:
        """Check what is in a file; raises Refusal with all that is wrong.

        importer  the user that imports, links run as that one; see `records.Parameter`
        """
        state, around = self._definitions.state, self._around()
        return check_import(document, state, around, vhost, importer, steps)

    def submit(
        self,
        checked: CheckedImport,
        done: Done,
        source: str = "",
        first: bool = False,
        forever: bool = False,
    ) -> None:
        """Import; `done` is called with MetadataDone or a Refusal, after which nothing has changed.

        source, first  see `commands.ImportDefinitions`
        forever        see `Definitions.submit`
        """
        command = ImportDefinitions(checked.commands, source, first)
        size = len(encode_submission(0, "", 0, (command,), NEWEST))
        if size > ENTRY_BYTES_MAX:
            done(
                errors.InvalidArgument(
                    f"an import of {size:,} bytes, {ENTRY_BYTES_MAX:,} is the most; import the "
                    "definitions in parts, such as one vhost at a time"
                )
            )
            return

        def imported(reply: object) -> object:
            for each in command.commands:
                if isinstance(each, DeclareQueue):
                    warn_of_fallback(each.initial or each.config)
            return reply

        self._definitions.submit(command, errors.converted(done, imported), forever=forever)
