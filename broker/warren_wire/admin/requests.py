"""Requests for the administration of a cluster, and how one is read and written.

A request is a struct; its fields are the names in the path, the keys of the query and those of the
body. `/management` over AMQP 1.0, the HTTP API and the client's `Admin` derive from it:

    method, path, query, body --- AdminRoute.request ------> request --- its handler ---> result
    request ------------------ written --------------> method, path and body  (the client)
    request ------------------ fields_of ------------> AdminRoute.read             (the HTTP API)

A field named in the route's path is of the path; others are of the query (GET, DELETE) or of the
body (PUT, POST). Names are those of the connection's vhost; permissions have not been checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from inspect import cleandoc
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
)
from urllib.parse import quote, unquote

import msgspec
from msgspec import inspect

from warren_wire.arguments import DURATION_MS_MAX, NAME_BYTES_MAX
from warren_wire.errors import InvalidArgument
from warren_wire.name_patterns import BadPattern, Pattern

Tag: TypeAlias = Literal["management", "policymaker", "monitoring", "administrator"]
"""A user tag: what a user may see and do beyond the vhosts."""

# ------------------------------------------------------------------ requests, results

Token: TypeAlias = int
"""Identifies an unanswered request; never used twice in one connection."""
T = TypeVar("T")


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base class of the requests of an AMQP 1.0 connection to the broker."""

    token: Token = 0


class AdminRequest(Request, Generic[T], frozen=True):
    """Base class of the requests of the administration; T: what the client's call returns.

    It is answered by `Connection10.answer(request.token, result)` with the result that its
    docstring names, or with a `warren_wire.errors.Refusal`. Statuses in the docstrings are those
    of the refusal's class.

    ROUTES     methods and paths; of several the client writes the first one that has a place for
               every name that is given
    count_key  the answer's key for the number in MessagesCounted
    """

    ROUTES: ClassVar[tuple[AdminRoute, ...]] = ()
    count_key: ClassVar[str] = "messages"

    @classmethod
    def reads_many(cls) -> bool:
        """Return whether it goes through objects of the cluster: its path ends with their kind."""
        last = cls.ROUTES[-1] if cls.ROUTES else None
        return last is not None and last.method == "GET" and not last.pattern[-1].startswith(":")

    def changes(self) -> bool:
        """Return whether the audit log has it: it is no question, and no work of a client's."""
        return bool(self.ROUTES) and self.ROUTES[0].method != "GET"

    def checked(self) -> Self:
        """Return it as the handler takes it; raise InvalidArgument for what no type refuses."""
        return self


AnyAdminRequest: TypeAlias = AdminRequest[Any]


class Result(msgspec.Struct, frozen=True):
    """Base class of the results of requests."""


class Performed(Result, frozen=True):
    """Success without a body (204)."""


class MessagesCounted(Result, frozen=True):
    """A number of messages."""

    messages: int


class Listed(Result, Generic[T], frozen=True):
    """Several values, in the order of the request's docstring."""

    values: tuple[T, ...]


class Put(Result, frozen=True):
    """The object exists; created: by this request (201 rather than 204)."""

    created: bool


# ------------------------------------------------------------------ types of fields

INT64_MAX = (1 << 63) - 1
_DIGITS_MAX = len(str(INT64_MAX))
Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
"""A name that is not empty; other strings may be. Of either at most 255 bytes."""
NodeName: TypeAlias = Annotated[
    str, msgspec.Meta(min_length=1, extra={"remedy": "GET /nodes shows the names"})
]
Text: TypeAlias = Annotated[str, msgspec.Meta(extra={"long": True})]
"""A string of any length."""
Secret: TypeAlias = Annotated[str, msgspec.Meta(extra={"long": True, "secret": True})]
"""A string of any length that no error text shows."""
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
    inspect.VarTupleType: "list",
    inspect.BytesType: "bytes",
}


def seen(*, column: bool = False, http: str | None = None, amqp: str = "") -> msgspec.Meta:
    """Return what is said of a field where its value is shown.

    column  it is one in the tables of `warren`, in the order of the fields
    http    its key in the HTTP API; "": it is not there; None: the same
    amqp    how `/management` writes the number: ulong, uint
    """
    return msgspec.Meta(extra={"column": column, "http": http, "amqp": amqp})


def count(*, column: bool = False, http: str | None = None) -> msgspec.Meta:
    """Return what is said of a number that its queue counts."""
    return seen(column=column, http=http, amqp="ulong")


Number: TypeAlias = Annotated[int, seen(amqp="ulong")]
"""A number that `/management` writes as a ulong."""


@cache
def said_of(kind: type[msgspec.Struct]) -> dict[str, dict[str, Any]]:
    """Return what `seen` says of a struct's fields, by their names."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType), kind
    return {
        field.name: field.type.extra
        for field in found.fields
        if isinstance(field.type, inspect.Metadata) and field.type.extra is not None
    }


def columns_of(kind: type[msgspec.Struct]) -> list[str]:
    """Return the fields that are columns in a table of these values."""
    return [name for name, said in said_of(kind).items() if said.get("column")]


# ------------------------------------------------------------------ routes

Query: TypeAlias = Mapping[str, str]
BODY_BYTES_MAX: Final = 128 << 10
"""A body's default bound: what a frame of AMQP 0.9.1 may hold, such as a queue's arguments."""
BODY_PARTS_MAX: Final = 8_192
"""Values of a body, with those inside of others."""


class OverHttp(NamedTuple):
    """How the HTTP API answers what a route answers over `/management`.

    paths    at which; names in them are fields of the request, `:vhost` else the connection's
    status   of the answer to a change; None: the node's, 201 or 204
    shows    the answer has the node's body
    without  fields that are not read there
    refused  statuses of the node's refusals that have another one there, each with RabbitMQ's
             status, its word for the error, and what it puts before the reason
    """

    paths: tuple[str, ...]
    status: int | None
    shows: bool
    without: tuple[str, ...]
    refused: Mapping[int, tuple[int, str, str]]


class AdminRoute(NamedTuple):
    """A method and a path, what its requests need, and how they are read.

    What is declared here is checked before a body is decoded: first the right, then the size.

    pattern    the path's segments; `:name` is the field of that key, `::name` not decoded
    fixed      fields that the route itself says
    tag        without it the body is not looked at; None: any user's request is (the handler
               checks permissions)
    bytes_max  of the body as it came, in whatever encoding
    body       fields are in a body, not in the query
    whole      the field that is the body itself; "": the body is a map
    http       how the HTTP API answers as the node does; None: it has no such path, or one with an
               answer of its own (`warren_broker.http`)
    """

    method: str
    pattern: tuple[str, ...]
    fixed: Mapping[str, Any]
    tag: Tag | None
    bytes_max: int
    parts_max: int
    body: bool
    whole: str
    http: OverHttp | None

    @property
    def shown(self) -> str:
        """The method and the path, for texts; they name the route."""
        return f"{self.method} /{'/'.join(self.pattern)}"

    @property
    def names(self) -> list[str]:
        """The keys of the fields in the path."""
        return [part.lstrip(":") for part in self.pattern if part.startswith(":")]

    def check(
        self,
        must_be: Callable[[Tag, str], None],
        size: int,
        parts: Callable[[int], int] | None = None,
    ) -> None:
        """Raise Refusal unless the user may ask, and the body may be decoded.

        must_be  see `Access.must_be`
        parts    counts the body's values up to a number
        """
        if self.tag is not None:
            must_be(self.tag, self.shown)
        if size > self.bytes_max:
            raise InvalidArgument(
                f"the request has {size:,} bytes, {self.bytes_max:,} is the most for {self.shown}"
            )
        if parts is not None and parts(self.parts_max) > self.parts_max:
            raise InvalidArgument(
                f"the body has over {self.parts_max:,} values, the most for {self.shown}"
            )

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """Return the decoded names in a path, by key; None: it is another one."""
        literals, names = _parts(self.pattern)
        for at, part in literals:
            if segments[at] != part:
                return None
        return {
            key: segments[at] if raw else checked_name(key, unquote(segments[at]))
            for at, key, raw in names
        }

    def request(
        self, kind: type[AnyRequest], names: Mapping[str, str], query: Query, body: Any
    ) -> AnyRequest:
        """Return the request that was made; raises InvalidArgument."""
        fields = fields_in(kind)
        given: dict[str, Any] = {
            key: _from_text(key, text, fields[key]) for key, text in names.items()
        }
        rest = [key for key in fields if key not in given and key not in self.fixed]
        if self.whole:
            given[self.whole] = body
            rest.remove(self.whole)
        elif self.body:
            given |= _from_body(body, rest, names)
        if self.whole or not self.body:
            given |= queried(kind, {key: query[key] for key in rest if key in query})
        return self.read(kind, given)

    def read(
        self, kind: type[AnyRequest], given: Mapping[str, Any], lenient: bool = False
    ) -> AnyRequest:
        """Return the request with these fields; None is an absent one. Raises InvalidArgument.

        The text names the first key that is wrong.

        lenient  values are taken as RabbitMQ's HTTP API takes them
        """
        found = {key: value for key, value in given.items() if value is not None}
        for key, field in fields_in(kind).items():
            if key in found:
                value = _converted(found[key], field.wanted) if lenient else found[key]
                found[key] = _checked(key, value, field)
            elif key in given and field.required and not field.word:
                found[key] = None  # any JSON value is read, and null is one
            elif field.required and key not in self.fixed:
                raise InvalidArgument(f"the body lacks {key!r}")
        request: AnyRequest = msgspec.convert({**found, **self.fixed}, kind).checked()
        return request


AnyRequest = TypeVar("AnyRequest", bound=AnyAdminRequest)


def route(
    shown: str,
    tag: Tag | None = None,
    *,
    bytes_max: int = BODY_BYTES_MAX,
    parts_max: int = BODY_PARTS_MAX,
    body: bool | None = None,
    whole: str = "",
    http: Literal[True] | str | tuple[str, ...] = (),
    status: int | None = None,
    shows: bool = False,
    without: tuple[str, ...] = (),
    refused: Mapping[int, tuple[int, str, str]] | None = None,
    **fixed: Any,
) -> AdminRoute:
    """Return the route of a method and a path, such as `GET /users/:user`; see `AdminRoute`.

    http  paths of the HTTP API; True: the same path. What follows is of `OverHttp`
    """
    method, _, path = shown.partition(" ")
    reads = method in ("PUT", "POST") if body is None else body
    pattern = tuple(path[1:].split("/"))
    over_http = None
    if http:
        at: str | tuple[str, ...] = path if http is True else http
        paths = (at,) if isinstance(at, str) else at
        over_http = OverHttp(paths, status, shows or method == "GET", without, refused or {})
    named = (method, pattern, fixed, tag, bytes_max, parts_max)
    return AdminRoute(*named, reads, whole, over_http)


# ------------------------------------------------------------------ reading


class _Field(NamedTuple):
    """A field of a request: its type without None and metadata, and what the metadata says.

    word   the type's name in texts; "": any value is taken
    where  how a text names it when it is empty
    """

    name: str
    required: bool
    default: Any
    wanted: inspect.Type
    said: dict[str, Any]
    word: str
    where: str


@cache
def _parts(
    pattern: tuple[str, ...],
) -> tuple[list[tuple[int, str]], list[tuple[int, str, bool]]]:
    """Return the places of a path with their texts, and those of names: key, and not decoded."""
    literals = [(at, part) for at, part in enumerate(pattern) if not part.startswith(":")]
    names = [
        (at, part.lstrip(":"), part.startswith("::"))
        for at, part in enumerate(pattern)
        if part.startswith(":")
    ]
    return literals, names


@cache
def fields_in(kind: type[AnyAdminRequest]) -> dict[str, _Field]:
    """Return the fields of a request by key."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType), kind
    named = {name for one in kind.ROUTES for name in one.names if name != "name"}
    fields = {}
    for field in found.fields:
        wanted: inspect.Type = field.type
        said, key = dict[str, Any](), field.encode_name
        if isinstance(wanted, inspect.UnionType):
            (wanted,) = (each for each in wanted.types if not isinstance(each, inspect.NoneType))
        if isinstance(wanted, inspect.Metadata):
            said = wanted.extra or {}
            wanted = wanted.type
        word = "" if isinstance(wanted, inspect.AnyType) else _WORDS[type(wanted)]
        where = f"the {key}'s name" if key in named else f"the {key}"
        fields[key] = _Field(field.name, field.required, field.default, wanted, said, word, where)
    del fields["token"]
    return fields


def queried(kind: type[AnyAdminRequest], query: Query) -> dict[str, Any]:
    """Return the fields that a query says, by key; raises InvalidArgument."""
    fields = fields_in(kind)
    return {key: _from_text(key, text, fields[key]) for key, text in query.items() if key in fields}


def _from_text(key: str, text: str, field: _Field) -> Any:
    """Return the value of a text in a path or a query; raises InvalidArgument."""
    wanted = field.wanted
    if isinstance(wanted, inspect.IntType):
        return path_number(key, text, wanted)
    if isinstance(wanted, inspect.BoolType):
        if text.lower() not in ("true", "false", "1", "0", ""):
            raise InvalidArgument(f"{key}={text[:40]}: true or false")
        return text.lower() in ("true", "1")
    if isinstance(wanted, inspect.VarTupleType):
        return text.split(",")
    return text


def path_number(what: str, text: str, within: inspect.IntType | None = None) -> int:
    """Parse a number of a path or query; raise InvalidArgument."""
    digits = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    number = int(text) if digits else -1
    if within is not None and within.le not in (None, INT64_MAX):
        if not (within.ge or 0) <= number <= int(within.le or 0):
            raise InvalidArgument(
                f"{what}={text[:40]}: a number from {within.ge or 0} to {within.le} is expected"
            )
    elif not 0 <= number <= INT64_MAX:
        raise InvalidArgument(f"{what} {text[:40]!r} is not a number from 0 to {INT64_MAX}")
    return number


def read_map(kind: type[AnyRequest], value: Any) -> AnyRequest:
    """Return what a map inside of a request says; raises InvalidArgument."""
    return route("PUT /").request(kind, {}, {}, value)


def _from_body(body: Any, keys: list[str], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a body; None is an empty map. Raises InvalidArgument.

    Unknown keys are refused and the known ones named, so that a misspelt option is not ignored. It
    may repeat names of the path, as in RabbitMQ.
    """
    if body is None:
        return {}
    if not isinstance(body, dict):
        raise InvalidArgument(f"the body is a {type(body).__name__}; a map is expected")
    for key in body:
        if key not in keys and key not in names:
            shown = ", ".join(keys) or "none"
            raise InvalidArgument(f"unknown key {key!r} in the body; known: {shown}")
    return {key: value for key, value in body.items() if key in keys}


def _converted(value: Any, wanted: inspect.Type) -> Any:
    """Return a value as clients of the HTTP API mean it: `"true"`, and `[]` for an empty map.

    The latter is what some languages make of one.
    """
    if isinstance(wanted, inspect.BoolType) and isinstance(value, str):
        return {"true": True, "false": False}.get(value, value)
    return {} if isinstance(wanted, inspect.DictType) and value == [] else value


def _checked(key: str, value: Any, field: _Field) -> Any:
    """Return a value that fits its field; raise InvalidArgument, with a text for the client."""
    wanted, said, word = field.wanted, field.said, field.word
    if not word:
        return value
    found = type(value).__name__
    if found != word and not (word == "int" and found == "bool"):
        shown = key if "secret" in said or word == "bytes" else f"{key}={value!r}"
        raise InvalidArgument(f"{shown} is a {found}; {word} is expected")
    if isinstance(wanted, inspect.DictType):
        return {str(name): item for name, item in value.items()}
    if isinstance(wanted, inspect.IntType):
        least, most = wanted.ge or 0, wanted.le or INT64_MAX
        if found == "bool" or not least <= value <= most:
            raise InvalidArgument(f"{key}={value!r}: a number from {least} to {most} is expected")
    elif isinstance(wanted, inspect.LiteralType):
        if value not in wanted.values:
            known = ", ".join(map(str, wanted.values))
            raise InvalidArgument(f"{key}={value[:40]!r}: one of {known} is expected")
    elif isinstance(wanted, inspect.StrType) and "long" not in said:
        if wanted.min_length and not value:
            raise InvalidArgument(f"{field.where} is empty; {said.get('remedy', 'choose one')}")
        checked_name(key, value)
    return value


def checked_name(what: str, value: str) -> str:
    """Return a name of at most 255 bytes; raise InvalidArgument for a longer one."""
    if len(value) * 4 > NAME_BYTES_MAX and len(value.encode("utf-8", "replace")) > NAME_BYTES_MAX:
        raise InvalidArgument(f"{what} {value[:40]!r}… is longer than {NAME_BYTES_MAX} bytes")
    return value


def checked_pattern(key: str, value: str) -> str:
    """Return a pattern over names that can be matched; raise InvalidArgument."""
    try:
        Pattern(value)
    except BadPattern as error:
        raise InvalidArgument(f"{key}={value!r} {error}; '.*' is found everywhere") from error
    return value


# ------------------------------------------------------------------ texts


def summary_of(described: Any) -> str:
    """Return what a request does, by its docstring, without the answers that this names."""
    said = " ".join((described.__doc__ or "").partition("\n\n")[0].split())
    return re.sub(r"[;.]?( Refused:| Answer:|( \d{3}\b)).*", ".", said)


def texts_of(kind: type[AnyAdminRequest]) -> dict[str, str]:
    """Return what the docstrings of a request and its bases say of its fields, by key.

    A line `name  text`, or `name, other  text`, begins such a text; indented ones continue it.
    """
    found: dict[str, str] = {}
    for base in kind.__mro__:
        names: list[str] = []
        for line in cleandoc(base.__doc__ or "").split("\n"):
            if begins := re.match(r"(\w+(?:, \w+)*) {2,}(.+)", line):
                names = [one for one in begins[1].split(", ") if one not in found]
                found |= dict.fromkeys(names, begins[2])
            elif line.startswith("  "):
                found |= {one: f"{found[one]} {line.strip()}" for one in names}
    return {key: found[field.name] for key, field in fields_in(kind).items() if field.name in found}


# ------------------------------------------------------------------ writing


def fields_of(request: AnyAdminRequest) -> tuple[AdminRoute, dict[str, Any]]:
    """Return the route that a request takes, and its fields by key, without those of the route."""
    fields = fields_in(type(request))
    values = {key: getattr(request, field.name) for key, field in fields.items()}
    for one in request.ROUTES:
        names = {key: values[key] for key in one.names}
        if None in names.values() or any(values[k] != v for k, v in one.fixed.items()):
            continue
        given = {k: v for k, v in values.items() if v != fields[k].default and k not in one.fixed}
        return one, {**given, **names}
    raise AssertionError(f"no route for {request}")


def written(request: AnyAdminRequest) -> tuple[str, str, Any]:
    """Return a request as method, path and body; raise ValueError for an empty name in the path."""
    taken, given = fields_of(request)
    parts = []
    for part in taken.pattern:
        if not part.startswith(":"):
            parts.append(part)
            continue
        name = str(given.pop(part.lstrip(":")))
        if not name:
            raise ValueError(f"a {part[1:]}'s name must not be empty")
        parts.append(name if part.startswith("::") else quote(name, safe=""))
    path = "/" + "/".join(parts)
    body = given.pop(taken.whole) if taken.whole else None
    if taken.body and not taken.whole:
        return taken.method, path, given
    query = "&".join(f"{key}={_as_text(value)}" for key, value in given.items())
    return taken.method, f"{path}?{query}" if query else path, body


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return quote(",".join(value) if isinstance(value, tuple) else str(value), safe=",")


def answer_type(kind: type[AnyAdminRequest]) -> Any:
    """Return what the answer to a request is, the T of its base class."""
    for base in getattr(kind, "__orig_bases__", ()):
        for argument in getattr(base, "__args__", ()):
            if not isinstance(argument, TypeVar):
                return argument
    return answer_type(kind.__base__)  # type: ignore[arg-type]
