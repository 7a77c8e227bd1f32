"""Runtime parameters, of vhosts and global ones: set, remove."""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from warren_machines.metadata.commands import AnyReply, DeleteParameter, MetadataDone, PutParameter
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.state import MetadataState
from warren_wire import errors

PARAMETERS_MAX: Final = 1_000
"""Parameters of a vhost, and as many global ones."""


CLUSTER_NAME: Final = "cluster_name"
"""Global parameter with the name under which the cluster is shown, as RabbitMQ's."""


def cluster_name(state: MetadataState, configured: str) -> str:
    """Return the name under which the cluster is shown: the one that was set, or its own.

    configured  the name by which its nodes, shovels and federation links know it
    """
    found = state.global_parameters.get(CLUSTER_NAME)
    return found.value if found is not None and _is_name(found.value) else configured


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""


def put_parameter(context: MetadataContext, command: PutParameter) -> AnyReply:
    """Add or replace a parameter."""
    given = command.parameter
    if not given.vhost:
        kept = context.state.global_parameters
        _check_room(len(kept), given.name in kept, "the cluster")
        kept[given.name] = given
        context.tell("parameter.set", given)
        return MetadataDone()
    found = context.scope(given.vhost).parameters
    key = (given.component, given.name)
    _check_room(len(found), key in found, f"vhost '{given.vhost}'")
    found[key] = given
    context.tell("parameter.set", given)
    return MetadataDone()


def _check_room(count: int, known: bool, where: str) -> None:
    if count >= PARAMETERS_MAX and not known:
        raise errors.PreconditionFailed(
            f"{where} has {count} parameters, and {PARAMETERS_MAX} is the most; clear one first"
        )


def delete_parameter(context: MetadataContext, command: DeleteParameter) -> AnyReply:
    """Remove a parameter."""
    if not command.vhost:
        gone = context.state.global_parameters.pop(command.name, None)
        if gone is None:
            raise errors.NotFound(f"no global parameter '{command.name}'")
        context.tell("parameter.cleared", gone)
        return MetadataDone()
    found = context.scope(command.vhost).parameters
    gone = found.pop((command.component, command.name), None)
    if gone is None:
        raise errors.NotFound(
            f"no parameter '{command.name}' of component '{command.component}' in vhost "
            f"'{command.vhost}'"
        )
    context.tell("parameter.cleared", gone)
    return MetadataDone()
