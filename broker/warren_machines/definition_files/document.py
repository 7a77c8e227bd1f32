"""A file of definitions as values: JSON in RabbitMQ's format, with its keys.

Only the form is checked here; what the objects mean is `plan`'s subject. Every object may lack what
RabbitMQ's import lets it lack.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import msgspec

from warren_wire.errors import InvalidArgument
from warren_wire.undecodable import NESTING_LEVELS_MAX, nested_deeper

DOCUMENT_BYTES_MAX: Final = 64 * 1024 * 1024
OBJECTS_MAX: Final = 100_000
"""Objects of one file: the node that decodes it, and every node that applies it, is busy for a
second or two with so many; the check is divided among turns."""

QUEUE_TYPE: Final = "x-queue-type"

Table: TypeAlias = dict[str, Any] | list[Any]
"""A map; older servers write an empty one as a list, and some as a list of pairs."""


class FileObject(msgspec.Struct, frozen=True):
    """Base class of the objects of a file."""


class VhostEntry(FileObject, frozen=True):
    """A vhost; `metadata` has the keys again in exports of newer servers."""

    name: str
    description: str | None = None
    tags: str | list[str] | None = None
    default_queue_type: str | None = None
    tracing: bool | None = None
    metadata: Table | None = None
    limits: Any = None
    protected_from_deletion: bool | None = None


class UserEntry(FileObject, frozen=True):
    """A user, with a password or its hash."""

    name: str
    password_hash: str | None = None
    hashing_algorithm: str | None = None
    password: str | None = None
    tags: str | list[str] | None = None
    limits: Any = None

    def __repr__(self) -> str:
        return f"UserEntry(name={self.name!r})"


class PermissionEntry(FileObject, frozen=True):
    """A user's permissions in a vhost."""

    user: str
    configure: str
    write: str
    read: str
    vhost: str | None = None


class TopicPermissionEntry(FileObject, frozen=True):
    """A user's topic permissions for an exchange."""

    user: str
    exchange: str
    write: str
    read: str
    vhost: str | None = None


class ParameterEntry(FileObject, frozen=True):
    """A runtime parameter; operator policies are among them."""

    component: str
    name: str
    value: Any
    vhost: str | None = None


class GlobalParameterEntry(FileObject, frozen=True):
    """A global runtime parameter."""

    name: str
    value: Any


class PolicyEntry(FileObject, frozen=True, rename={"apply_to": "apply-to"}):
    """A policy."""

    name: str
    pattern: str
    definition: Table
    priority: int = 0
    apply_to: str = "all"
    vhost: str | None = None


class ExchangeEntry(FileObject, frozen=True):
    """An exchange."""

    name: str
    type: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool | None = None
    arguments: Table | None = None
    vhost: str | None = None


class QueueEntry(FileObject, frozen=True):
    """A queue.

    type           of exports since 3.10
    implicit_type  of Warren's exports: the argument QUEUE_TYPE was not part of the declaration
    """

    name: str
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    type: str | None = None
    implicit_type: bool = False
    arguments: Table | None = None
    vhost: str | None = None


class BindingEntry(FileObject, frozen=True):
    """A binding."""

    source: str
    destination: str
    destination_type: Literal["queue", "exchange"]
    routing_key: str = ""
    arguments: Table | None = None
    properties_key: str | None = None
    vhost: str | None = None


class Document(msgspec.Struct, frozen=True):
    """All objects of a file, each list in its order.

    unknown  (place, key) of keys that no version of RabbitMQ writes and that mean nothing here
    """

    vhosts: list[VhostEntry] = []
    users: list[UserEntry] = []
    permissions: list[PermissionEntry] = []
    topic_permissions: list[TopicPermissionEntry] = []
    parameters: list[ParameterEntry] = []
    global_parameters: list[GlobalParameterEntry] = []
    policies: list[PolicyEntry] = []
    exchanges: list[ExchangeEntry] = []
    queues: list[QueueEntry] = []
    bindings: list[BindingEntry] = []
    unknown: list[tuple[str, str]] = []


KINDS: Final = tuple(name for name in Document.__struct_fields__ if name != "unknown")
WHOLE_CLUSTER: Final = ("vhosts", "users", "permissions", "topic_permissions", "global_parameters")
"""Kinds that a file of one vhost has no objects of."""
INFORMATION: Final = (
    "rabbit_version",
    "rabbitmq_version",
    "product_name",
    "product_version",
    "rabbitmq_definition_format",
    "original_cluster_name",
    "original_vhost_name",
    "explanation",
    "description",
    "default_queue_type",
    "metadata",
    "limits",
    "name",
)
"""Keys of a file that tell where it comes from."""
_KEYS: Final[dict[str, frozenset[str]]] = {
    each.name: frozenset(get_args(each.type)[0].__struct_encode_fields__)
    for each in msgspec.structs.fields(Document)
    if each.name in KINDS
}


def parse(data: bytes) -> Document:
    """Read a file's bytes; raises InvalidArgument, which names the place of the first fault."""
    if len(data) > DOCUMENT_BYTES_MAX:
        raise InvalidArgument(
            f"definitions of {len(data):,} bytes, {DOCUMENT_BYTES_MAX:,} is the most; import them "
            "in parts, such as one vhost at a time"
        )
    try:
        found = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"definitions that are not UTF-8: {error.reason} at byte {error.start}"
        ) from None
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise InvalidArgument(f"definitions that are not JSON: {error}") from None
    if nested_deeper(found, NESTING_LEVELS_MAX):
        raise InvalidArgument(
            f"definitions that are not JSON: nested deeper than {NESTING_LEVELS_MAX} levels"
        )
    if not isinstance(found, dict):
        raise InvalidArgument("definitions: a JSON object is expected, with users, queues, …")
    _check_count(found)
    _check_text(found)
    unknown = list(_unknown(found))
    known = {kind: found[kind] for kind in KINDS if found.get(kind) is not None}
    try:
        document = msgspec.convert(known, Document)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"definitions: {error}") from None
    return msgspec.structs.replace(document, unknown=unknown)


def joined(documents: Sequence[Document]) -> Document:
    """Return the objects of several files as those of one; raises InvalidArgument for too many."""
    if len(documents) == 1:
        return documents[0]
    lists: dict[str, list[Any]] = {
        name: [one for document in documents for one in getattr(document, name)]
        for name in Document.__struct_fields__
    }
    _check_count(lists)
    return Document(**lists)


def _check_count(found: dict[str, Any]) -> None:
    count = sum(len(found[kind]) for kind in KINDS if isinstance(found.get(kind), list))
    if count > OBJECTS_MAX:
        raise InvalidArgument(
            f"definitions with {count:,} objects, {OBJECTS_MAX:,} is the most; import them in "
            "parts, such as one vhost at a time"
        )


def _check_text(found: dict[str, object]) -> None:
    """Refuse text that cannot be stored: half of a surrogate pair, as JSON can escape it."""
    try:
        msgspec.json.encode(found)
    except (UnicodeEncodeError, RecursionError) as error:
        raise InvalidArgument(f"definitions with text that is not Unicode: {error}") from None


def _unknown(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for key in found:
        if key not in _KEYS and key not in INFORMATION:
            yield "the file", key
    for kind, keys in _KEYS.items():
        entries = found.get(kind)
        for number, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, dict) and not entry.keys() <= keys:
                for key in sorted(entry.keys() - keys):
                    yield f"{kind}[{number}]", key


def table(value: Table | None) -> dict[str, Any]:
    """Return a map that may be absent, or written as a list; raises InvalidArgument.

    RabbitMQ 3.10 exports the definition of an operator policy as `[["max-length", 10]]`.
    """
    if isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for pair in value or ():
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise InvalidArgument("a JSON object is expected, not a list")
        found[pair[0]] = pair[1]
    return found
