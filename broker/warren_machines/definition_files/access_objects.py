"""Vhosts, users and permissions of a file."""

from __future__ import annotations

from typing import Any, Final, Literal

from warren_machines.definition_files.document import (
    PermissionEntry,
    TopicPermissionEntry,
    UserEntry,
    VhostEntry,
    table,
)
from warren_machines.definition_files.import_plan import ImportPlan, checked_size
from warren_machines.metadata import passwords
from warren_machines.metadata.commands import (
    ChangeLimits,
    PutGrant,
    PutParameter,
    PutUser,
    PutVhost,
)
from warren_machines.metadata.limits import KNOWN, check_limits
from warren_machines.metadata.records import Grant, User, Vhost
from warren_machines.metadata.vhosts_and_users import PROTECTED, check_patterns, protection
from warren_wire import errors
from warren_wire.admin.users import parse_tags
from warren_wire.admin.vhosts import DEFAULT_QUEUE_TYPES
from warren_wire.errors import InvalidArgument

ALL: Final = ".*"
"""The pattern of everything."""
VHOST_LIMITS: Final = "vhost-limits"
"""Component of the parameters in which RabbitMQ keeps the limits of vhosts."""
_METADATA = ("description", "tags", "default_queue_type")


def plan_vhosts(plan: ImportPlan) -> None:
    """Add the vhosts; what a file does not say of an existing vhost stays as it is."""
    for name, entry in plan.each_once("vhosts", "vhost"):
        with plan.refusing(name):
            checked_size("vhost", entry.name)
            vhost = _vhost(plan, name, entry)
            plan.vhosts[entry.name] = vhost
            plan.add("vhosts", name, PutVhost(vhost))
            _plan_protection(plan, name, entry)


def _plan_protection(plan: ImportPlan, name: str, entry: VhostEntry) -> None:
    """Add whether a vhost can be deleted; what a file does not say of it stays."""
    on: Any = entry.protected_from_deletion
    if on is None:
        on = table(entry.metadata).get(PROTECTED)
    if isinstance(on, bool):
        flag = PutParameter(protection(entry.name, on))
        plan.add("parameters", f"protection of {name} from deletion", flag)
    elif on is not None:
        plan.note(name, PROTECTED, "kept without: it is neither true nor false")


def _vhost(plan: ImportPlan, name: str, entry: VhostEntry) -> Vhost:
    scope = plan.state.scopes.get(entry.name)
    before = scope.vhost if scope is not None else Vhost(entry.name)
    metadata = dict(table(entry.metadata))
    given: dict[str, Any] = {key: metadata.pop(key, None) for key in _METADATA}
    given |= {key: getattr(entry, key) for key in _METADATA if getattr(entry, key) is not None}
    metadata.pop(PROTECTED, None)
    for key in sorted(metadata):
        plan.note(name, f"metadata.{key}", "kept without: this key has no meaning here")
    if entry.tracing:
        plan.note(name, "tracing", "kept without: `warren vhosts trace-on` turns it on, by node")
    description = given["description"]
    if description is not None and not isinstance(description, str):
        raise InvalidArgument(f"description {description!r} is not a text")
    tags = parse_tags(given["tags"])
    return Vhost(
        entry.name,
        before.description if description is None else description,
        before.tags if tags is None else tags,
        _queue_type(plan, name, given["default_queue_type"], before.default_queue_type),
    )


def _queue_type(plan: ImportPlan, name: str, asked: object, before: str) -> str:
    if asked is None:
        return before
    if asked in DEFAULT_QUEUE_TYPES:
        return str(asked)
    if asked not in ("", "undefined"):
        plan.note(
            name,
            "default_queue_type",
            f"kept without: '{asked}' is not one of {', '.join(DEFAULT_QUEUE_TYPES)}; the node's "
            "default applies",
        )
    return ""


# ------------------------------------------------------------------ users


def plan_users(plan: ImportPlan) -> None:
    """Add the users, with their passwords' hashes."""
    for name, entry in plan.each_once("users", "user"):
        with plan.refusing(name):
            checked_size("user", entry.name)
            user = User(entry.name, _hash(plan, name, entry), parse_tags(entry.tags) or ())
            plan.users[entry.name] = user
            plan.add("users", name, PutUser(user))


def _hash(plan: ImportPlan, name: str, entry: UserEntry) -> str:
    known = plan.state.users.get(entry.name)
    if entry.password_hash is not None:
        algorithm = entry.hashing_algorithm or ""
        if algorithm and algorithm not in passwords.ALGORITHMS:
            plan.note(
                name,
                "hashing_algorithm",
                f"kept without a password: '{algorithm}' is not one of "
                f"{', '.join(passwords.ALGORITHMS)}; set a new one",
            )
            return ""
        return passwords.checked(entry.password_hash, algorithm)
    if entry.password is None:
        raise InvalidArgument(
            "give password, or password_hash ('' for a user who cannot log in with a password)"
        )
    # A repeated import draws no new salt: it would be another hash, and a change.
    if known is not None and passwords.matches(entry.password, known.password_hash):
        return known.password_hash
    return plan.around.hash_password(entry.password)


# ------------------------------------------------------------------ limits


def plan_vhosts_limits(plan: ImportPlan) -> None:
    """Add the limits of vhosts and users, after the objects that they would limit.

    RabbitMQ's exports have those of a vhost twice: with the vhost, and as a parameter.
    """
    if plan.vhost is None:
        for _, vhost in plan.each("vhosts"):
            _plan_limits(plan, "vhost", vhost.name, vhost.limits)


def plan_users_limits(plan: ImportPlan) -> None:
    """Add the limits of users."""
    if plan.vhost is None:
        for _, user in plan.each("users"):
            _plan_limits(plan, "user", user.name, user.limits)


def plan_parameters_limits(plan: ImportPlan) -> None:
    """Add the limits of vhosts that are parameters."""
    for number, given in plan.each("parameters"):
        if given.component == VHOST_LIMITS:
            name = plan.vhost_of("parameters", number, given)
            if name is not None:
                _plan_limits(plan, "vhost", name, given.value)


def _plan_limits(plan: ImportPlan, of: Literal["vhost", "user"], owner: str, given: Any) -> None:
    if given is None:
        return
    name = f"limits of {of} '{owner}'"
    try:
        wanted = dict(table(given))
        for key in sorted(set(wanted) - set(KNOWN[of])):
            plan.note(name, key, "left out: there is no such limit here")
            del wanted[key]
        limits = check_limits(of, wanted)
    except errors.Refusal as refusal:
        plan.refuse(name, refusal)
        return
    if plan.limits.setdefault((of, owner), limits) is limits:
        plan.add("limits", name, ChangeLimits(of, owner, limits, replace=True))
    elif plan.limits[of, owner] != limits:
        plan.problems.append(f"{name} are in the file twice, and the two differ")


# ------------------------------------------------------------------ permissions


def plan_permissions(plan: ImportPlan, kind: str = "permissions") -> None:
    """Add permissions, or topic permissions, of users of the file or of the cluster."""
    for number, entry in plan.each(kind):
        vhost = plan.vhost_of(kind, number, entry)
        if vhost is not None:
            _plan_grant(plan, kind, vhost, entry)


def plan_importers_permissions(plan: ImportPlan) -> None:
    """Let the user that imports a vhost that was not there do everything in it, as RabbitMQ does.

    Unless the file says what it may do: otherwise no user could use the vhost.
    """
    user = plan.importer
    if not user or plan.vhost is not None:  # a token's, or the operator's at the start; no vhosts
        return
    for _, entry in plan.each("vhosts"):
        vhost, identity = entry.name, ("permissions", entry.name, user, None)
        if vhost in plan.vhosts and vhost not in plan.state.scopes and identity not in plan.seen:
            plan.seen[identity] = entry
            name = f"permissions of user '{user}' in vhost '{vhost}'"
            plan.add("permissions", name, PutGrant(Grant(vhost, user, ALL, ALL, ALL)))


def _plan_grant(
    plan: ImportPlan, kind: str, vhost: str, entry: PermissionEntry | TopicPermissionEntry
) -> None:
    exchange = entry.exchange if isinstance(entry, TopicPermissionEntry) else None
    configure = entry.configure if isinstance(entry, PermissionEntry) else ""
    what = "permissions" if exchange is None else f"topic permissions for exchange '{exchange}'"
    name = f"{what} of user '{entry.user}' in vhost '{vhost}'"
    if not plan.is_first((kind, vhost, entry.user, exchange), name, entry):
        return
    if entry.user not in plan.users and entry.user not in plan.state.users:
        plan.problems.append(f"{name}: no such user in the file or in the cluster")
        return
    grant = Grant(vhost, entry.user, configure, entry.write, entry.read, exchange)
    try:
        check_patterns(grant)
    except InvalidArgument as refusal:
        # Left out, one for a topic exchange would allow everything there.
        plan.refuse(name, refusal)
        return
    plan.add(kind, name, PutGrant(grant))
