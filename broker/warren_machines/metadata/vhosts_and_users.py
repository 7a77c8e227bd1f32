"""Vhosts, users and their permissions."""

from __future__ import annotations

from operator import itemgetter
from typing import Final

import msgspec

from warren_machines.metadata.changes import UserDeleted, VhostDeleted
from warren_machines.metadata.commands import (
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
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.permissions import check_pattern
from warren_machines.metadata.queues import remove_queues
from warren_machines.metadata.records import Grant, Parameter, User, Vhost
from warren_machines.metadata.state import DEFAULT_EXCHANGES, GrantKey, MetadataState, new_scope
from warren_wire import errors
from warren_wire.name_patterns import BadPattern

VHOST_COMPONENT: Final = "vhost"
"""Component of the parameters that the broker keeps about a vhost."""
PROTECTED: Final = "protected_from_deletion"
"""RabbitMQ's name of the flag, in definitions and over HTTP: a vhost is protected from deletion.

The flag is a parameter that clients can neither set nor see. The machine refuses the deletion, so
that the order in the log decides. 1. One node is asked to protect a vhost.  2. Another one, which
has not applied that yet, is asked to delete it.  3. The deletion comes after the flag.
"""
ADMINISTRATOR = "administrator"
"""The tag of users that may change everything."""
DEFAULT_NAMES = frozenset(name for name, _, _ in DEFAULT_EXCHANGES)


def protection(vhost: str, on: bool) -> Parameter:
    """Return the flag as a parameter."""
    return Parameter(vhost, VHOST_COMPONENT, PROTECTED, on)


def protected(state: MetadataState, vhost: str) -> bool | None:
    """Return whether a vhost is protected; None: that was never set, so it is not."""
    found = state.parameters(vhost).get((VHOST_COMPONENT, PROTECTED))
    return None if found is None else found.value is True


def check_deletion(state: MetadataState, vhost: str) -> None:
    """Raise PreconditionFailed for a vhost that is protected."""
    if protected(state, vhost):
        raise errors.PreconditionFailed(
            f"Refusing to delete virtual host '{vhost}' because it is protected from deletion"
        )


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
        _tell_of_user(context, None, user)
    grant = Grant(vhost.name, user.name, ".*", ".*", ".*")
    if (vhost.name, user.name, None) not in state.grants:
        _put_grant(context, grant)
    return MetadataDone()


def _add_vhost(context: MetadataContext, vhost: Vhost) -> None:
    if vhost.name not in context.state.scopes:
        context.state.scopes[vhost.name] = new_scope(vhost)
        context.tell("vhost.created", vhost)


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
    users = context.state.users
    known = users.get(without)
    if known is None or ADMINISTRATOR not in known.tags:
        return
    if not any(ADMINISTRATOR in one.tags and one is not known for one in users.values()):
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
    check_deletion(state, command.name)
    gone = remove_queues(context, list(scope.queues.values()))
    for _, leaving in sorted(scope.bindings.items(), key=itemgetter(0)):
        for _, binding in sorted(leaving.items(), key=itemgetter(0)):
            context.tell("binding.deleted", binding)
    for name, exchange in sorted(scope.exchanges.items(), key=itemgetter(0)):
        if name not in DEFAULT_NAMES:
            context.tell("exchange.deleted", exchange)
    for key in sorted(state.granted.get(("vhost", command.name), ()), key=_grant_order):
        _drop_grant(context, key)
    del state.scopes[command.name]
    context.tell("vhost.deleted", scope.vhost)
    context.changes.append(VhostDeleted(command.name))
    return gone


def put_user(context: MetadataContext, command: PutUser) -> AnyReply:
    """Add a user, or replace all of an existing one but its limits; keep an administrator."""
    if ADMINISTRATOR not in command.user.tags:
        _keep_administrator(context, command.user.name)
    return put_imported_user(context, command)


def put_imported_user(context: MetadataContext, command: PutUser) -> AnyReply:
    """Add or replace a user of an import, which checks at its end that an administrator is left."""
    if not command.user.name:
        raise errors.InvalidArgument("a user needs a name of at least one character")
    user, known = command.user, context.state.users.get(command.user.name)
    if known is not None:
        user = msgspec.structs.replace(user, limits=known.limits)
    context.state.users[user.name] = user
    _tell_of_user(context, known, user)
    return MetadataDone()


def delete_user(context: MetadataContext, command: DeleteUser) -> AnyReply:
    """Delete a user with all grants; an unknown name is not an error."""
    state = context.state
    _keep_administrator(context, command.name)
    user = state.users.pop(command.name, None)
    if user is not None:
        for key in sorted(state.granted.get(("user", command.name), ()), key=_grant_order):
            _drop_grant(context, key)
        context.tell("user.deleted", user)
        context.changes.append(UserDeleted(command.name))
    return MetadataDone()


def put_grant(context: MetadataContext, command: PutGrant) -> AnyReply:
    """Set permissions, or topic permissions."""
    grant = command.grant
    context.scope(grant.vhost)
    if grant.user not in context.state.users:
        raise errors.NotFound(f"no user '{grant.user}'")
    _put_grant(context, grant)
    return MetadataDone()


def delete_grant(context: MetadataContext, command: DeleteGrant) -> AnyReply:
    """Clear permissions, or topic permissions."""
    state, user = context.state, command.user
    gone = [(command.vhost, user, command.exchange)]
    if command.exchange == "":  # all of the topic permissions
        of_user = state.granted.get(("user", user), ())
        gone = [key for key in of_user if key[0] == command.vhost and key[2] is not None]
    for key in sorted(gone, key=_grant_order):
        if key in state.grants:
            _drop_grant(context, key)
    return MetadataDone()


def _tell_of_user(context: MetadataContext, before: User | None, user: User) -> None:
    """Report what a command made of a user; None: there was none."""
    if before is None:
        context.tell("user.created", user)
    elif before.password_hash != user.password_hash:
        changed = "changed" if user.password_hash else "cleared"
        context.tell(f"user.password.{changed}", user)
    if user.tags != (() if before is None else before.tags):
        context.tell("user.tags.set", user)


def _put_grant(context: MetadataContext, grant: Grant) -> None:
    context.state.put_grant(grant)
    context.tell(f"{_kind_of(grant)}.created", grant)


def _grant_order(key: GrantKey) -> tuple[str, str, str, bool]:
    return (key[0], key[1], key[2] or "", key[2] is not None)


def _drop_grant(context: MetadataContext, key: GrantKey) -> None:
    grant = context.state.drop_grant(key)
    context.tell(f"{_kind_of(grant)}.deleted", grant)


def _kind_of(grant: Grant) -> str:
    return "permission" if grant.exchange is None else "topic.permission"
