"""Permissions: regular expressions over names (`name_patterns`), and users' tags."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias

import msgspec

from warren_wire import errors
from warren_wire.admin.requests import Tag
from warren_wire.name_patterns import BadPattern, NameMatcher, Pattern

MATCHERS_KEPT_MAX = 128
"""Patterns that are kept compiled: with what each may take (PROGRAM_BYTES_MAX), 32 MiB."""
ANSWERS_KEPT_MAX = 4096
"""Answers that are kept, each with a name and a pattern: some MB."""

Permission: TypeAlias = Literal["configure", "write", "read"]
"""A permission on a resource."""
Kind: TypeAlias = Literal["queue", "exchange"]
"""The kind of a resource."""

INCLUDED_IN: dict[Tag, frozenset[str]] = {
    "management": frozenset({"management", "policymaker", "monitoring", "administrator"}),
    "policymaker": frozenset({"policymaker", "administrator"}),
    "monitoring": frozenset({"monitoring", "administrator"}),
    "administrator": frozenset({"administrator"}),
}
"""For each tag the tags that include it, as in RabbitMQ."""

NEVER = "^$"
"""RabbitMQ's pattern for no permission: an empty pattern means the same."""


class HeldPermissions(Protocol):
    """A user's permissions in one vhost."""

    def allows(self, permission: Permission, name: str) -> bool:
        """Return whether the user has that permission for the queue or exchange."""


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


@lru_cache(maxsize=ANSWERS_KEPT_MAX)
def _found(pattern: str, name: str) -> bool:
    return _matcher(pattern or NEVER).first(name) is not None


@lru_cache(maxsize=MATCHERS_KEPT_MAX)
def _matcher(pattern: str) -> NameMatcher:
    try:
        # The bound in bytes is for what is set: names put into a topic's pattern come on top of it.
        return NameMatcher([Pattern(pattern, bytes_max=sys.maxsize)])
    except BadPattern:  # refused when it is set; one of another version allows nothing
        return NameMatcher([])


def check_pattern(pattern: str, vhost: str, user: str) -> None:
    """Raise BadPattern unless a pattern can be set, with the names that a topic's one may get."""
    Pattern(pattern)
    Pattern(topic_pattern(pattern, vhost, user), bytes_max=sys.maxsize)


def topic_pattern(pattern: str, vhost: str, user: str) -> str:
    """Return the pattern with `{vhost}` and `{username}` replaced by their values."""
    return pattern.replace("{vhost}", re.escape(vhost)).replace("{username}", re.escape(user))


def check(
    permissions: HeldPermissions | None,
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
    permissions: HeldPermissions | None, kind: Kind, name: str, vhost: str, user: str
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
    routing_keys: Iterable[str],
    exchange: str,
    vhost: str,
    user: str,
) -> None:
    """Raise AccessRefused unless the topic permissions of that exchange allow the routing keys.

    permissions  None: none are set, everything is allowed; `{vhost}` and `{username}` in a pattern
                 are replaced by their values
    """
    if permissions is None:
        return
    pattern = topic_pattern(getattr(permissions, permission), vhost, user)
    for key in dict.fromkeys(routing_keys):
        if not _found(pattern, key):
            raise topic_refused(permission, key, exchange, vhost, user)


def topic_refused(
    permission: Permission, routing_key: str, exchange: str, vhost: str, user: str
) -> errors.AccessRefused:
    """Return the refusal of a routing key at a topic exchange."""
    return errors.AccessRefused(
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
