"""Users, vhosts and permissions as `/management` shows them; the keys are RabbitMQ's."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from warren_wire.errors import InvalidArgument

TAGS_MAX: Final = 64
DEFAULT_QUEUE_TYPES: Final = ("classic", "quorum")
"""Types that a vhost may give to durable queues that name none."""


class UserInfo(msgspec.Struct, frozen=True):
    """A user.

    hashing_algorithm  RabbitMQ's name of the algorithm of password_hash; "" without a hash
    """

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: tuple[str, ...]

    def __repr__(self) -> str:
        return f"UserInfo(name={self.name!r}, tags={self.tags!r})"


class WhoAmI(msgspec.Struct, frozen=True):
    """The user of the connection.

    is_internal_user  the cluster's definitions have it; False: it is a token's
    """

    name: str
    tags: tuple[str, ...]
    is_internal_user: bool = True


class VhostInfo(msgspec.Struct, frozen=True):
    """A virtual host.

    default_queue_type  of durable queues that name none: the vhost's, or the node's; `undefined`:
                        they are classic ones with several members
    tracing             whether the node that was asked traces messages in it
    protected_from_deletion  whether it cannot be deleted; None: that was never set, so it can
    """

    name: str
    description: str
    tags: tuple[str, ...]
    default_queue_type: str
    tracing: bool = False
    protected_from_deletion: bool | None = None


class PermissionInfo(msgspec.Struct, frozen=True):
    """A user's permissions in a vhost: regular expressions over the names of resources."""

    user: str
    vhost: str
    configure: str
    write: str
    read: str


class TopicPermissionInfo(msgspec.Struct, frozen=True):
    """A user's topic permissions: regular expressions over routing keys of a topic exchange."""

    user: str
    vhost: str
    exchange: str
    write: str
    read: str


def parse_tags(value: Any) -> tuple[str, ...] | None:
    """Parse a list, or a comma-separated string, as RabbitMQ does; each tag once, in order."""
    if value is None:
        return None
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if not isinstance(value, list) or not all(isinstance(tag, str) for tag in value):
        raise InvalidArgument("tags: a list of texts is expected, or one text with commas")
    tags = tuple(dict.fromkeys(tag for tag in value if tag))
    if len(tags) > TAGS_MAX or any(len(tag.encode()) > 255 for tag in tags):
        raise InvalidArgument(f"tags: at most {TAGS_MAX}, of at most 255 bytes each")
    return tags
