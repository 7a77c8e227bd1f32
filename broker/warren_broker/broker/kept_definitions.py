"""What the definitions have of an object, as the audit log shows it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from warren_machines.metadata import commands as metadata
from warren_machines.metadata.exchanges import to_binding
from warren_machines.metadata.state import MetadataState

Kept: TypeAlias = dict[str, object]
"""Settings by name."""


def queue_kept(state: MetadataState, vhost: str, name: str) -> Kept | None:
    """Return the settings of a queue; None: there is none, or it ends with its connection."""
    found = state.queue(vhost, name)
    if found is None or found.config.exclusive:
        return None
    config = found.config
    said = {"type": config.kind, "durable": config.durable, "auto_delete": config.auto_delete}
    return {**said, "arguments": found.arguments}


def definition_kept(state: MetadataState, command: metadata.MetadataCommand) -> Kept | None:
    """Return the exchange or binding that a command is about; None: there is none."""
    if isinstance(command, metadata.Bind | metadata.Unbind):
        scope = state.scopes.get(command.vhost)
        binding = to_binding(command)
        of_source = {} if scope is None else scope.bindings.get(command.source, {})
        if binding.key not in of_source or _is_exclusive(state, command):
            return None
        return {
            "source": command.source,
            "destination": command.destination,
            "to_queue": command.to_queue,
            "routing_key": command.routing_key,
            "arguments": command.arguments,
        }
    assert isinstance(command, metadata.DeclareExchange | metadata.DeleteExchange), command
    return exchange_kept(state, command.vhost, command.name)


def exchange_kept(state: MetadataState, vhost: str, name: str) -> Kept | None:
    """Return the settings of an exchange; None: there is none."""
    found = state.exchange(vhost, name)
    return None if found is None else msgspec.structs.asdict(found)


def _is_exclusive(state: MetadataState, command: metadata.Bind | metadata.Unbind) -> bool:
    if not command.to_queue:
        return False
    queue = state.queue(command.vhost, command.destination)
    return queue is not None and queue.config.exclusive
