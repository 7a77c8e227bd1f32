"""Runtime parameters, of vhosts and global ones: set, remove."""

from __future__ import annotations

from typing import Final

from warren_broker import errors
from warren_broker.metadata.commands import (
    AnyReply,
    DeleteParameter,
    MetadataDone,
    PutParameter,
)
from warren_broker.metadata.metadata_context import MetadataContext

PARAMETERS_MAX: Final = 1_000
"""Parameters of a vhost, and as many global ones."""


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
