"""Vhosts, users and their permissions."""

from __future__ import annotations

import msgspec

from warren_broker import errors
from warren_broker.metadata.apply_context import MetadataContext
from warren_broker.metadata.changes import UserChanged, VhostDeleted
from warren_broker.metadata.commands import (
    AddVhost,
    AnyReply,
    Bootstrap,
    Deleted,
    DeleteGrant,
    DeleteUser,
    DeleteVhost,
    MetadataDone,
    PutGrant,
    PutUser,
    PutVhost,
)
from warren_broker.metadata.queues import remove_queues
from warren_broker.metadata.records import Grant, Vhost
from warren_broker.metadata.state import new_scope
from warren_broker.name_patterns import BadPattern
from warren_broker.permissions import check_pattern

ADMINISTRATOR = "administrator"
"""The tag of users that may change everything."""


def check_patterns(grant: Grant) -> None:
    """Raise InvalidArgument unless all patterns can be matched in bounded time; for submitters."""
    for field in ("configure", "write", "read"):
        pattern = getattr(grant, field)
        try:
            check_pattern(pattern, grant.vhost, grant.user)
        except BadPattern as error:
            raise errors.InvalidArgument(
                f"permission pattern {field}={pattern!r} {error}; '.*' allows everything, '^$' "
                "nothing"
            ) from error


def bootstrap(context: MetadataContext, command: Bootstrap) -> AnyReply:
    """Create the first vhost and user; once per cluster."""
    state = context.state
    if state.bootstrapped:
        return MetadataDone()
    state.bootstrapped = True
    vhost, user = command.vhost, command.user
    _add_vhost(context, vhost)
    if user.name not in state.users:
        state.users[user.name] = user
    grant = Grant(vhost.name, user.name, ".*", ".*", ".*")
    state.grants.setdefault((vhost.name, user.name, None), grant)
    context.changes.append(UserChanged(user.name))
    return MetadataDone()


def _add_vhost(context: MetadataContext, vhost: Vhost) -> None:
    if vhost.name not in context.state.scopes:
        context.state.scopes[vhost.name] = new_scope(vhost)
        context.topology_changed(vhost.name)


def add_vhost(context: MetadataContext, command: AddVhost) -> AnyReply:
    """Add a vhost with its default exchanges."""
    if not command.vhost.name:
        raise errors.InvalidArgument("a vhost needs a name of at least one character")
    _add_vhost(context, command.vhost)
    return MetadataDone()


def put_vhost(context: MetadataContext, command: PutVhost) -> AnyReply:
    """Add a vhost, or replace all of an existing one but its limits."""
    scope = context.state.scopes.get(command.vhost.name)
    if scope is None:
        return add_vhost(context, AddVhost(command.vhost))
    scope.vhost = msgspec.structs.replace(command.vhost, limits=scope.vhost.limits)
    return MetadataDone()


def _keep_administrator(context: MetadataContext, without: str) -> None:
    """Raise PreconditionFailed when user `without` is the only one with the tag `administrator`."""
    having = [user.name for user in context.state.users.values() if ADMINISTRATOR in user.tags]
    if having == [without]:
        raise errors.PreconditionFailed(
            f"user '{without}' is the last one with the tag '{ADMINISTRATOR}': nobody could change "
            "users any more; give the tag to another user first"
        )


def delete_vhost(context: MetadataContext, command: DeleteVhost) -> AnyReply:
    """Delete a vhost with its queues, exchanges, bindings and grants."""
    state = context.state
    scope = state.scopes.get(command.name)
    if scope is None:
        return Deleted(())
    gone = remove_queues(context, list(scope.queues.values()))
    for key in [key for key in state.grants if key[0] == command.name]:
        del state.grants[key]
    del state.scopes[command.name]
    context.topology_changed(command.name)
    context.changes.append(VhostDeleted(command.name))
    return gone


def put_user(context: MetadataContext, command: PutUser) -> AnyReply:
    """Add a user, or replace all of an existing one but its limits."""
    if not command.user.name:
        raise errors.InvalidArgument("a user needs a name of at least one character")
    if command.keep_administrator and ADMINISTRATOR not in command.user.tags:
        _keep_administrator(context, command.user.name)
    user, known = command.user, context.state.users.get(command.user.name)
    if known is not None:
        user = msgspec.structs.replace(user, limits=known.limits)
    context.state.users[user.name] = user
    context.changes.append(UserChanged(user.name))
    return MetadataDone()


def delete_user(context: MetadataContext, command: DeleteUser) -> AnyReply:
    """Delete a user with all grants; an unknown name is not an error."""
    state = context.state
    if command.keep_administrator:
        _keep_administrator(context, command.name)
    if state.users.pop(command.name, None) is not None:
        for key in [key for key in state.grants if key[1] == command.name]:
            del state.grants[key]
        context.changes.append(UserChanged(command.name, deleted=True))
    return MetadataDone()


def put_grant(context: MetadataContext, command: PutGrant) -> AnyReply:
    """Set permissions, or topic permissions."""
    grant = command.grant
    context.scope(grant.vhost)
    if grant.user not in context.state.users:
        raise errors.NotFound(f"no user '{grant.user}'")
    context.state.grants[(grant.vhost, grant.user, grant.exchange)] = grant
    context.changes.append(UserChanged(grant.user))
    return MetadataDone()


def delete_grant(context: MetadataContext, command: DeleteGrant) -> AnyReply:
    """Clear permissions, or topic permissions."""
    grants = context.state.grants
    gone = [
        key
        for key in grants
        if key[:2] == (command.vhost, command.user)
        and (key[2] == command.exchange or (command.exchange == "" and key[2] is not None))
    ]
    for key in gone:
        del grants[key]
    if gone:
        context.changes.append(UserChanged(command.user))
    return MetadataDone()
