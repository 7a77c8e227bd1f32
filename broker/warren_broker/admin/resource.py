"""The parts of every `/management` resource: requests, results, bodies and routes.

A request's names are those of the connection's vhost; permissions have not been checked. A request
is answered by `Connection10.answer(request.token, result)` with the result that its docstring
names, or with a `warren_wire.errors.Refusal`. Statuses in the docstrings are those of the
refusal's class. `dispatch` finds the resource of a path; the `*_service` modules execute requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import inspect

from warren_machines.metadata.permissions import Tag
from warren_wire.arguments import DURATION_MS_MAX, NAME_BYTES_MAX
from warren_wire.errors import InvalidArgument
from warren_wire.name_patterns import BadPattern, Pattern

# ------------------------------------------------------------------ requests, results

Token: TypeAlias = int
"""Identifies an unanswered request; never used twice in one connection."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the requests of an AMQP 1.0 connection to the broker."""

    token: Token = 0


class ManagementRequest(Request, frozen=True):
    """Base class of the requests received through `/management`.

    count_key  the answer's key for the number in MessagesCounted
    """

    count_key: ClassVar[str] = "messages"


class Result(msgspec.Struct, frozen=True):
    """Base class of the results of requests."""


class Performed(Result, frozen=True):
    """Success without a body (204)."""


class MessagesCounted(Result, frozen=True):
    """A number of messages."""

    messages: int


Value = TypeVar("Value")


class Shown(Result, Generic[Value], frozen=True):
    """A single value, shown field by field."""

    value: Value


class Listed(Result, Generic[Value], frozen=True):
    """Several values, in the order of the request's docstring."""

    values: tuple[Value, ...]


class Put(Result, frozen=True):
    """The object exists; created: by this request (201 rather than 204)."""

    created: bool


Answer: TypeAlias = tuple[int, Any]
"""HTTP status, and an AMQP value for the body."""


def plain_value(value: Any) -> Any:
    """Convert a struct to maps, lists, strings and numbers: a tuple would be another AMQP type."""
    return msgspec.json.decode(msgspec.json.encode(value))


RENDERERS: dict[type[Result], Callable[[Any], Answer]] = {
    Shown: lambda result: (200, plain_value(result.value)),
    Listed: lambda result: (200, [plain_value(one) for one in result.values]),
    Put: lambda result: (201 if result.created else 204, None),
}
"""The results that several resources have."""


# ------------------------------------------------------------------ routes

Names: TypeAlias = tuple[str, ...]
"""The decoded segments of the path at the pattern's names."""
Query: TypeAlias = Mapping[str, str]
Make: TypeAlias = Callable[[Names, Query, Any], ManagementRequest]
"""From the path's names, the query and the body to a request; raises Refusal."""
BODY_BYTES_MAX: Final = 128 << 10
"""A body's default bound: what a frame of AMQP 0.9.1 may hold, such as a queue's arguments."""
BODY_PARTS_MAX: Final = 8_192
"""Values of a body, with those inside of others."""


class ManagementRoute(NamedTuple):
    """A method and a path, what its requests need, and how they are made.

    What is declared here is checked before a body is decoded: first the right, then the size.

    pattern    the path's segments
    tag        without it the body is not looked at; None: any user's request is (the handler
               checks permissions)
    bytes_max  of the body as it came, in whatever encoding
    """

    method: str
    pattern: Names
    make: Make
    tag: Tag | None = None
    bytes_max: int = BODY_BYTES_MAX
    parts_max: int = BODY_PARTS_MAX

    @property
    def shown(self) -> str:
        """The method and the path, for texts."""
        return f"{self.method} /{'/'.join(self.pattern)}"

    def check_body(self, size: int, parts: Callable[[int], int] | None) -> None:
        """Raise InvalidArgument for a body that is too large.

        parts  counts its values up to a number
        """
        if size > self.bytes_max:
            raise InvalidArgument(
                f"the request has {size:,} bytes, {self.bytes_max:,} is the most for {self.shown}"
            )
        if parts is not None and parts(self.parts_max) > self.parts_max:
            raise InvalidArgument(
                f"the body has over {self.parts_max:,} values, the most for {self.shown}"
            )


INT64_MAX = (1 << 63) - 1
_DIGITS_MAX = len(str(INT64_MAX))


def route(
    method: str,
    path: str,
    make: Make,
    tag: Tag | None = None,
    *,
    bytes_max: int = BODY_BYTES_MAX,
    parts_max: int = BODY_PARTS_MAX,
) -> ManagementRoute:
    """Return a route; in `path`, `:name` matches one segment, `::name` one that is not decoded."""
    return ManagementRoute(method, tuple(path[1:].split("/")), make, tag, bytes_max, parts_max)


def from_names(make: Callable[..., ManagementRequest], *whats: str) -> Make:
    """Make a request of the path's names alone.

    whats  what the first names are of, where an empty one is refused
    """

    def made(names: Names, query: Query, body: Any) -> ManagementRequest:
        for what, name in zip(whats, names, strict=False):
            filled(what, name)
        return make(*names)

    return made


def filled(what: str, name: str) -> str:
    """Return a name that is not empty; raise InvalidArgument."""
    if not name:
        raise InvalidArgument(f"the {what}'s name is empty; choose one")
    return name


def checked_name(what: str, value: str) -> str:
    """Return a name of at most 255 bytes; raise InvalidArgument for a longer one."""
    if len(value.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise InvalidArgument(f"{what} {value[:40]!r}… is longer than {NAME_BYTES_MAX} bytes")
    return value


def path_number(what: str, text: str) -> int:
    """Parse a number in a path; raise InvalidArgument."""
    digits = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    if not digits or int(text) > INT64_MAX:
        raise InvalidArgument(f"{what} {text[:40]!r} is not a number from 0 to {INT64_MAX}")
    return int(text)


def is_set(query: Query, key: str) -> bool:
    """Return whether a flag in the query is set."""
    return query.get(key, "").lower() in ("true", "1")


# ------------------------------------------------------------------ bodies

Secret: TypeAlias = Annotated[str, msgspec.Meta(extra={"secret": True})]
"""A string of any length that no error text shows; other strings have at most 255 bytes."""
Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX)]
DurationMs: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=DURATION_MS_MAX)]
"""A time from now: a point in time that is later fits into no timestamp of a client's."""
_WORDS: dict[type[inspect.Type], str] = {
    inspect.StrType: "str",
    inspect.LiteralType: "str",
    inspect.IntType: "int",
    inspect.BoolType: "bool",
    inspect.DictType: "dict",
    inspect.ListType: "list",
}


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of the bodies of requests: the field names are the keys of the AMQP map."""


class EmptyBody(Body, frozen=True):
    """The body of a request that takes none."""


B = TypeVar("B", bound=Body)


def read_body(kind: type[B], value: Any) -> B:
    """Parse a request's body; None is an empty map, a key with the value None is absent.

    Unknown keys are refused and the known ones named, so that a misspelt option is not ignored.
    Raises InvalidArgument, which names the first key that is wrong.
    """
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise InvalidArgument(f"the body is a {type(value).__name__}; a map is expected")
    fields = _fields(kind)
    for key in value:
        if key not in fields:
            shown = ", ".join(fields) or "none"
            raise InvalidArgument(f"unknown key {key!r} in the body; known: {shown}")
    given = {key: item for key, item in value.items() if item is not None}
    for key, field in fields.items():
        if key in given:
            _check_value(key, given[key], field)
        elif field.required:
            raise InvalidArgument(f"the body lacks {key!r}")
    return msgspec.convert(given, kind)


@cache
def _fields(kind: type[Body]) -> dict[str, inspect.Field]:
    """Return the fields of a body by name."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType), kind
    return {field.encode_name: field for field in found.fields}


def _check_value(key: str, value: Any, field: inspect.Field) -> None:
    """Raise InvalidArgument, with a text for the client, when a value does not fit its field."""
    wanted = field.type
    if isinstance(wanted, inspect.UnionType):
        (wanted,) = (each for each in wanted.types if not isinstance(each, inspect.NoneType))
    secret = isinstance(wanted, inspect.Metadata)  # the only kind of metadata, see Secret
    if isinstance(wanted, inspect.Metadata):
        wanted = wanted.type
    if isinstance(wanted, inspect.AnyType):
        return
    word, found = _WORDS[type(wanted)], type(value).__name__
    if found != word and not (word == "int" and found == "bool"):
        shown = key if secret else f"{key}={value!r}"
        raise InvalidArgument(f"{shown} is a {found}; {word} is expected")
    if isinstance(wanted, inspect.IntType):
        least, most = wanted.ge or 0, wanted.le or INT64_MAX
        if found == "bool" or not least <= value <= most:
            raise InvalidArgument(f"{key}={value!r}: a number from {least} to {most} is expected")
    elif isinstance(wanted, inspect.LiteralType):
        if value not in wanted.values:
            known = ", ".join(map(str, wanted.values))
            raise InvalidArgument(f"{key}={value[:40]!r}: one of {known} is expected")
    elif isinstance(wanted, inspect.StrType) and not secret:
        checked_name(key, value)


def argument_table(value: dict[Any, Any]) -> dict[str, Any]:
    """Return a map with its keys as strings."""
    return {str(name): value[name] for name in value}


def checked_pattern(key: str, value: str) -> str:
    """Return a pattern over names that can be matched; raise InvalidArgument."""
    try:
        Pattern(value)
    except BadPattern as error:
        raise InvalidArgument(f"{key}={value!r} {error}; '.*' is found everywhere") from error
    return value
