"""An import of definitions: many commands, of which all are carried out or none.

A handler that refuses its command has changed nothing, but those before it have. So the parts of
the state that an import can change are kept before (`_Kept`), and put back after a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from warren_machines.metadata import exchanges, limits, queues, runtime_parameters, vhosts_and_users
from warren_machines.metadata.commands import (
    AnyImported,
    AnyReply,
    Bind,
    ChangeLimits,
    DeclareExchange,
    DeclareQueue,
    ImportDefinitions,
    MetadataDone,
    PutGrant,
    PutParameter,
    PutUser,
    PutVhost,
    SetPolicy,
)
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.state import MetadataState, Scope
from warren_wire import errors

IMPORTED: Final[dict[type, Callable[[MetadataContext, Any], AnyReply]]] = {
    PutVhost: vhosts_and_users.put_vhost,
    PutUser: vhosts_and_users.put_imported_user,
    PutGrant: vhosts_and_users.put_grant,
    SetPolicy: runtime_parameters.set_policy,
    PutParameter: runtime_parameters.put_parameter,
    DeclareExchange: exchanges.declare_exchange,
    DeclareQueue: queues.declare_queue,
    Bind: exchanges.bind,
    ChangeLimits: limits.change_limits,
}


def import_definitions(context: MetadataContext, command: ImportDefinitions) -> AnyReply:
    """Carry out all commands, or none and raise the first refusal."""
    state = context.state
    if command.source and command.source == state.loaded:
        return MetadataDone()
    kept = _Kept(context)
    try:
        for each in command.commands:
            carry_out(context, each)
        check_administrators(state)
    except errors.Refusal:
        kept.put_back(context)
        raise
    if command.source:
        state.loaded = command.source
    if command.first:
        state.bootstrapped = True
    return MetadataDone()


def carry_out(context: MetadataContext, command: AnyImported) -> AnyReply:
    """Carry out one command of an import; what is in effect already is left alone."""
    if in_effect(context.state, command):
        return MetadataDone()
    return IMPORTED[type(command)](context, command)


def in_effect(state: MetadataState, command: AnyImported) -> bool:
    """Return whether the object that a command sets is as the command has it.

    Exchanges, queues and bindings are not looked at: their commands change no existing one.
    """
    if isinstance(command, PutVhost):
        scope = state.scopes.get(command.vhost.name)
        return scope is not None and scope.vhost == replace(
            command.vhost, limits=scope.vhost.limits
        )
    if isinstance(command, PutUser):
        known = state.users.get(command.user.name)
        return known is not None and known == replace(command.user, limits=known.limits)
    if isinstance(command, ChangeLimits):
        return limits.of(state, command) == limits.changed(limits.of(state, command), command)
    if isinstance(command, PutGrant):
        grant = command.grant
        return state.grants.get((grant.vhost, grant.user, grant.exchange)) == grant
    if isinstance(command, PutParameter):
        given = command.parameter
        if not given.vhost:
            return state.global_parameters.get(given.name) == given
        return state.parameters(given.vhost).get((given.component, given.name)) == given
    return False


def check_administrators(state: MetadataState) -> None:
    """Raise PreconditionFailed when no user has the tag `administrator`."""
    if not any(vhosts_and_users.ADMINISTRATOR in user.tags for user in state.users.values()):
        raise errors.PreconditionFailed(
            f"no user would have the tag '{vhosts_and_users.ADMINISTRATOR}' after the import: "
            "nobody could change users any more; give the tag to one of the file's users"
        )


class _Kept:
    """What an import can change, as it was before.

    1. An import of 10,000 queues creates 9,000.  2. The next one exists with other arguments, since
    a client was faster: refused.  3. The 9,000 must be gone without a trace: no group has a number,
    no index an entry, no node is told.
    Replayed by test_an_import_refused_at_any_place_leaves_nothing.
    """

    def __init__(self, context: MetadataContext) -> None:
        state = context.state
        self._last_group = state.last_group
        self._dicts = [(found, dict(found)) for found in _dicts(state)]
        self._scopes = [_KeptScope(scope) for scope in state.scopes.values()]
        self._indexes = [(found, _copied(found)) for found in (state.owned, state.granted)]
        self._changes = len(context.changes)

    def put_back(self, context: MetadataContext) -> None:
        """Make the state and the context what they were."""
        state = context.state
        state.last_group = self._last_group
        for found, before in self._dicts:
            found.clear()
            found.update(before)
        for scope in self._scopes:
            scope.put_back()
        for index, before_it in self._indexes:
            index.clear()
            index.update(before_it)
        del context.changes[self._changes :]


def _dicts(state: MetadataState) -> tuple[dict[Any, Any], ...]:
    return (state.scopes, state.users, state.grants, state.groups, state.global_parameters)


class _KeptScope:
    """A vhost as it was before an import."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._vhost = scope.vhost
        self._version, self._stores = scope.version, scope.stores
        self._flat = [(found, dict(found)) for found in _flat(scope)]
        self._nested = [(found, _copied(found)) for found in _nested(scope)]
        self._journal = tuple(scope.journal)

    def put_back(self) -> None:
        """Make the vhost what it was."""
        scope = self._scope
        scope.vhost = self._vhost
        scope.version, scope.stores = self._version, self._stores
        for found, before in (*self._flat, *self._nested):
            found.clear()
            found.update(before)
        scope.policies.changed()
        scope.journal.clear()
        scope.journal.extend(self._journal)


def _flat(scope: Scope) -> tuple[dict[Any, Any], ...]:
    return (
        scope.exchanges,
        scope.queues,
        scope.source_versions,
        scope.policies.user,
        scope.policies.operator,
        scope.parameters,
    )


def _copied(found: dict[Any, dict[Any, Any]]) -> dict[Any, dict[Any, Any]]:
    return {key: dict(inner) for key, inner in found.items()}


def _nested(scope: Scope) -> tuple[dict[Any, dict[Any, Any]], ...]:
    return (scope.bindings, scope.to_queues, scope.to_exchanges)
