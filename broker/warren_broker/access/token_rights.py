"""What a token permits: the scopes of RabbitMQ's OAuth 2 backend.

A scope is `permission:vhost/name` or `permission:vhost/name/routing-key`, with `*` for any text and
escapes as in URLs (`%2F`, and `+` for a space), or `tag:name`. As in RabbitMQ 4.3, one without a
routing key permits no routing key of a topic exchange. The rights are of one connection, and looked
up in its token alone: a user of the same name in the definitions has nothing to do with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol, TypeVar
from urllib.parse import unquote_plus

import msgspec

from warren_machines.metadata.permissions import HeldPermissions, Permission

Key = TypeVar("Key")
Kept = TypeVar("Kept")
SCOPES_MAX: Final = 2_048
"""Different scopes of one token with the broker's prefix, as in RabbitMQ; more are refused."""
REMEMBERED_MAX: Final = 1_000
"""Answers of a token about names that are kept: a check of all its scopes takes up to 1 ms."""
_PERMISSIONS: Final = ("configure", "write", "read")
_TAG: Final = "tag:"


class Wildcard(msgspec.Struct, frozen=True):
    """A pattern as the texts between its stars; a match takes time in proportion to the name."""

    parts: tuple[str, ...]

    def matches(self, text: str) -> bool:
        """Return whether the whole text is what the pattern says."""
        if len(self.parts) == 1:
            return text == self.parts[0]
        first, *middle, last = self.parts
        at, end = len(first), len(text) - len(last)
        if at > end or not text.startswith(first) or not text.endswith(last):
            return False
        for part in middle:
            found = text.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return True


class TokenScope(msgspec.Struct, frozen=True):
    """One scope; key None: of no routing key."""

    permission: str
    vhost: Wildcard
    name: Wildcard
    key: Wildcard | None = None


class VhostRights:
    """The scopes of a token that hold in one vhost; at least one.

    _allowed  what was answered before; it depends on nothing else than the scopes
    """

    __slots__ = ("_allowed", "_keys", "_scopes")

    def __init__(self, scopes: tuple[TokenScope, ...]) -> None:
        assert scopes
        self._scopes = scopes
        self._allowed: dict[tuple[str, str], bool] = {}
        self._keys: dict[tuple[str, str], tuple[Wildcard, ...]] = {}

    def allows(self, permission: Permission, name: str) -> bool:
        """Return whether a scope permits that for the queue or exchange."""
        found = self._allowed.get((permission, name))
        if found is None:
            found = any(self._for(permission, name))
            _remember(self._allowed, (permission, name), found)
        return found

    def allows_key(self, permission: Permission, exchange: str, key: str) -> bool:
        """Return whether a scope permits that for a routing key of a topic exchange."""
        keys = self._keys.get((permission, exchange))
        if keys is None:
            found = self._for(permission, exchange)
            keys = tuple(scope.key for scope in found if scope.key is not None)
            _remember(self._keys, (permission, exchange), keys)
        return any(each.matches(key) for each in keys)

    def _for(self, permission: Permission, name: str) -> Iterator[TokenScope]:
        for scope in self._scopes:
            if scope.permission == permission and scope.name.matches(name):
                yield scope


class HeldRights(Protocol):
    """What a login says of its user: a token, or a link of this node (`cluster.link_logins`).

    expires_ms  in milliseconds since 1970; None: it does not end
    of_link     it is a link of this node, not a token
    """

    of_link: ClassVar[bool]

    @property
    def user(self) -> str: ...

    @property
    def tags(self) -> tuple[str, ...]: ...

    @property
    def expires_ms(self) -> int | None: ...

    def permissions(self, vhost: str) -> HeldPermissions | None:
        """Return the permissions in a vhost; None: the user may not enter it."""

    def allows_key(self, permission: Permission, vhost: str, exchange: str, key: str) -> bool:
        """Return whether that is allowed for a routing key of a topic exchange."""


@dataclass(slots=True, eq=False, repr=False)
class TokenRights:
    """A user by its token.

    expires_ms  in milliseconds since 1970
    """

    user: str
    scopes: tuple[TokenScope, ...] = ()
    tags: tuple[str, ...] = ()
    expires_ms: int = 0
    _vhosts: dict[str, VhostRights | None] = field(default_factory=dict)

    of_link: ClassVar[bool] = False

    def permissions(self, vhost: str) -> VhostRights | None:
        """Return the permissions in a vhost; None: the user may not enter it."""
        if vhost not in self._vhosts:
            inside = tuple(scope for scope in self.scopes if scope.vhost.matches(vhost))
            _remember(self._vhosts, vhost, VhostRights(inside) if inside else None)
        return self._vhosts[vhost]

    def allows_key(self, permission: Permission, vhost: str, exchange: str, key: str) -> bool:
        """Return whether a scope permits that for a routing key of a topic exchange."""
        held = self.permissions(vhost)
        return held is not None and held.allows_key(permission, exchange, key)


def parse_scopes(
    told: Iterable[str], prefix: str
) -> tuple[tuple[TokenScope, ...], tuple[str, ...]]:
    """Return scopes and tags; texts without the prefix, or that are no scopes, permit nothing.

    raises  ValueError: more than SCOPES_MAX
    """
    own = dict.fromkeys(text for text in told if text.startswith(prefix))
    if len(own) > SCOPES_MAX:
        raise ValueError(f"it has more than {SCOPES_MAX} scopes")
    scopes: list[TokenScope] = []
    tags: list[str] = []
    for text in own:
        bare = text[len(prefix) :]
        if bare.startswith(_TAG):
            tags.append(bare[len(_TAG) :])
            continue
        permission, _, pattern = bare.partition(":")
        parts = pattern.split("/")
        if permission in _PERMISSIONS and len(parts) in (2, 3):
            scopes.append(TokenScope(permission, *map(_wildcard, parts)))
    return tuple(scopes), tuple(sorted(set(tags)))


def aliased(told: Iterable[str], aliases: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return the scopes, and after them what the configuration gives for those that are aliases."""
    given = list(dict.fromkeys(told))
    return given + [scope for text in given for scope in aliases.get(text, ())]


def _wildcard(pattern: str) -> Wildcard:
    return Wildcard(tuple(unquote_plus(part) for part in pattern.split("*")))


def _remember(kept: dict[Key, Kept], key: Key, value: Kept) -> None:
    if len(kept) >= REMEMBERED_MAX:
        kept.clear()
    kept[key] = value
