"""Limits of vhosts and users: set, cleared, and the one on queues.

The others are checked where clients connect (`cluster.client_limits`), on the node of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from warren_machines.metadata.commands import AnyReply, ChangeLimits, MetadataDone
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.records import Limits
from warren_machines.metadata.state import MetadataState, Scope
from warren_wire import errors
from warren_wire.policy_keys import erlang, validation_failed

MAX_CONNECTIONS: Final = "max-connections"
MAX_QUEUES: Final = "max-queues"
MAX_CHANNELS: Final = "max-channels"
KNOWN: Final[Mapping[Literal["vhost", "user"], tuple[str, ...]]] = {
    "vhost": (MAX_CONNECTIONS, MAX_QUEUES),
    "user": (MAX_CONNECTIONS, MAX_CHANNELS),
}
"""The limits that vhosts and users may have."""
LIMIT_MAX: Final = (1 << 63) - 1


def limit(limits: Limits, name: str) -> int | None:
    """Return a limit; None: there is none."""
    value = limits.get(name, -1)
    return value if value >= 0 else None


def check_limits(of: Literal["vhost", "user"], given: Mapping[str, Any]) -> Limits:
    """Return the limits as they may be set; raise InvalidArgument, as RabbitMQ words it."""
    unknown = sorted(name for name in given if name not in KNOWN[of])
    if unknown:
        shown = ",".join(f'{{<<"{name}">>,{erlang(given[name])}}}' for name in unknown)
        raise _refused(of, f"Unrecognised terms [{shown}] in {_TITLES[of]}")
    for name, value in sorted(given.items()):
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LIMIT_MAX:
            raise _refused(of, f"{name} should be a number, actually was {erlang(value)}")
    return {name: int(value) for name, value in given.items()}


_TITLES: Final = {"vhost": "limits", "user": "user-limits"}


def _refused(of: Literal["vhost", "user"], problem: str) -> errors.InvalidArgument:
    return validation_failed(problem) if of == "vhost" else errors.InvalidArgument(problem)


def change_limits(context: MetadataContext, command: ChangeLimits) -> AnyReply:
    """Change the limits of a vhost or of a user; a repeat changes nothing."""
    if command.of == "vhost":
        scope = context.scope(command.name)
        vhost = msgspec.structs.replace(scope.vhost, limits=changed(scope.vhost.limits, command))
        if vhost != scope.vhost:
            context.tell(f"vhost.limits.{'set' if vhost.limits else 'cleared'}", vhost)
        scope.vhost = vhost
        return MetadataDone()
    user = context.state.users.get(command.name)
    if user is None:
        raise errors.NotFound(f"no user '{command.name}'")
    limited = msgspec.structs.replace(user, limits=changed(user.limits, command))
    if limited != user:
        context.tell(f"user.limits.{'set' if limited.limits else 'cleared'}", limited)
    context.state.users[command.name] = limited
    return MetadataDone()


def of(state: MetadataState, command: ChangeLimits) -> Limits:
    """Return the limits that a command changes; none of a vhost or user that does not exist."""
    if command.of == "vhost":
        scope = state.scopes.get(command.name)
        return scope.vhost.limits if scope is not None else {}
    user = state.users.get(command.name)
    return user.limits if user is not None else {}


def changed(limits: Limits, command: ChangeLimits) -> Limits:
    """Return the limits after a command."""
    wanted = {**({} if command.replace else limits), **command.limits}
    return {name: wanted[name] for name in sorted(wanted) if name not in command.cleared}


def check_queue_limit(scope: Scope, name: str) -> None:
    """Raise PreconditionFailed when the vhost may have no further queue."""
    most = limit(scope.vhost.limits, MAX_QUEUES)
    if most is None:
        return
    if len(scope.queues) - scope.stores >= most:
        raise errors.PreconditionFailed(
            f"cannot declare queue '{name}': queue limit in vhost '{scope.vhost.name}' ({most}) is "
            "reached"
        )
