"""Permissions: regular expressions over names, and users' tags."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from warren_broker import errors

Permission: TypeAlias = Literal["configure", "write", "read"]
"""A permission on a resource."""
Kind: TypeAlias = Literal["queue", "exchange"]
"""The kind of a resource."""

Tag: TypeAlias = Literal["management", "policymaker", "monitoring", "administrator"]
"""A user tag: what a user may see and do beyond the vhosts."""
INCLUDED_IN: dict[Tag, frozenset[str]] = {
    "management": frozenset({"management", "policymaker", "monitoring", "administrator"}),
    "policymaker": frozenset({"policymaker", "administrator"}),
    "monitoring": frozenset({"monitoring", "administrator"}),
    "administrator": frozenset({"administrator"}),
}
"""For each tag the tags that include it, as in RabbitMQ."""

NEVER = "^$"
"""RabbitMQ's pattern for no permission: an empty pattern means the same."""


class Permissions(msgspec.Struct, frozen=True):
    """A user's patterns in one vhost, matched anywhere in a name, as in RabbitMQ."""

    configure: str = NEVER
    write: str = NEVER
    read: str = NEVER

    def allows(self, permission: Permission, name: str) -> bool:
        """Return whether the pattern for `permission` is found in the name."""
        pattern: str = getattr(self, permission)
        return _found(pattern, name)


ALL = Permissions(configure=".*", write=".*", read=".*")
"""All permissions."""


@lru_cache(maxsize=4096)
def _found(pattern: str, name: str) -> bool:
    try:
        return re.compile(pattern or NEVER).search(name) is not None
    except re.error:
        return False  # metadata refuses such patterns; any other source allows nothing


def check(
    permissions: Permissions | None,
    permission: Permission,
    kind: Kind,
    name: str,
    vhost: str,
    user: str,
) -> None:
    """Raise AccessRefused unless allowed; the default exchange is matched as `amq.default`."""
    shown = "amq.default" if kind == "exchange" and name == "" else name
    if permissions is None or not permissions.allows(permission, shown):
        raise errors.permission_refused(permission, kind, name, vhost, user)


def check_any(
    permissions: Permissions | None, kind: Kind, name: str, vhost: str, user: str
) -> None:
    """Raise AccessRefused unless any permission is held (for passive declarations)."""
    if permissions is not None:
        for permission in ("configure", "write"):
            if permissions.allows(permission, name):
                return
    check(permissions, "read", kind, name, vhost, user)


def check_topic(
    permissions: Permissions | None,
    permission: Permission,
    routing_key: str,
    exchange: str,
    vhost: str,
    user: str,
) -> None:
    """Raise AccessRefused unless the topic permissions of that exchange allow the routing key.

    permissions  None: none are set, everything is allowed; `{vhost}` and `{username}` in a pattern
                 are replaced by their values
    """
    if permissions is None:
        return
    pattern: str = getattr(permissions, permission)
    pattern = pattern.replace("{vhost}", re.escape(vhost)).replace("{username}", re.escape(user))
    if not _found(pattern, routing_key):
        raise errors.AccessRefused(
            f"{permission} access to topic '{routing_key}' in "
            f"{errors.named('exchange', exchange, vhost)} refused for user '{user}'"
        )


def check_tag(tags: tuple[str, ...], needed: Tag, user: str, what: str) -> None:
    """Raise AccessRefused unless one of the user's tags is, or includes, the one needed.

    what  the operation, for the text: "forget a node"
    """
    if not INCLUDED_IN[needed].intersection(tags):
        raise errors.AccessRefused(
            f"user '{user}' may not {what}: the tag '{needed}' is needed, and "
            f"{', '.join(tags) or 'none'} is what the user has"
        )
