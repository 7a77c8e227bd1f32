"""The parser of link addresses.

Ordinary clients use RabbitMQ's address format, version 2; every name is percent-encoded:

    source  /queues/:queue
    target  /queues/:queue, /exchanges/:exchange/:key, /exchanges/:exchange, or null: then each
            message has such an address in its `to` property

Links of blocks, which the `warren` client uses, have a path or a query that is no address of
version 2: a further "/", a "?", or the default exchange (`/exchanges//blocks`). The exception is
`/exchanges/:x/blocks`, which is also an exchange with the routing key "blocks": there the attach
says what it is by the target's capability BLOCKS_CAPABILITY.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote

import msgspec

from warren_wire.arguments import NAME_BYTES_MAX
from warren_wire.block.layout import AREA_BODIES, AREA_PROPERTIES, AREAS
from warren_wire.errors import InvalidArgument, PreconditionFailed
from warren_wire.queue_values.describe_command import ReadBy

MANAGEMENT = "/management"
NUMBER_MAX = (1 << 63) - 1
ADDRESS_CHARACTERS_MAX = 4096
WANT_TIMES = "times"
WANT_BLOCKS = "blocks"
"""What a view of a queue may be asked for beside its rows."""
WANT_OUTLINES = "outlines"
WANT_AREAS: Final = {"properties": AREA_PROPERTIES, "bodies": AREA_BODIES}
"""What may be asked for instead of whole blocks: outlines, in which properties and bodies are
empty, with one of these areas or none. A fetch says `want=` and the areas, or nothing for both."""
STAGE_KEYS = ("sink", "run", "epoch", "batch", "partition", "attempt", "seq")
READ_BY_KEYS = ("query", "name", "batch")
BLOCKS_CAPABILITY = "warren:blocks"
"""Capability of the target of a link that carries blocks, not single messages."""
WARREN_ANSWERS = "warren:answers"
"""Property of a link to `/management` of a client that reads answers in Warren's form."""
_ENCODED = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*", re.ASCII)
"""What a percent-encoded segment may consist of (RFC 3986, pchar)."""
_DEFAULT_EXCHANGE_NAMES = ("", "amq.default")


class ManagementNode(msgspec.Struct, frozen=True):
    """`/management`, in either direction."""


class StageTarget(msgspec.Struct, frozen=True):
    """`/exchanges/:x/stage?sink=&run=&epoch=&batch=&partition=&attempt=&seq=`.

    epoch  the epoch of the run's driver
    seq    the number of the link's first block
    """

    exchange: str
    sink: str
    run: str
    epoch: int
    batch: int
    partition: int
    attempt: int
    seq: int


class BlocksTarget(msgspec.Struct, frozen=True):
    """`/queues/:q/blocks` or `/exchanges/:x/blocks`; queue is "" for the latter."""

    queue: str
    exchange: str


class ClaimSource(msgspec.Struct, frozen=True):
    """`/queues/:q/readers/:reader/claims/:number?first=&last=&want=&query=&name=&batch=`.

    areas    of the blocks: AREA_PROPERTIES, AREA_BODIES
    read_by  the batch that reads the claim, from query (its id), name and batch; None: not said
    """

    queue: str
    reader: str
    number: int
    first: int
    last: int
    areas: int = AREAS
    read_by: ReadBy | None = None


class BrowseSource(msgspec.Struct, frozen=True):
    """`/queues/:q/browse?max=&want=`; areas: as in ClaimSource."""

    queue: str
    max_messages: int
    areas: int = AREAS


class ViewSource(msgspec.Struct, frozen=True):
    """`/queues/:q/view?states=&first=&last=&max=&want=`.

    states  names of `message_states.STATES`
    first   and last: log indexes first <= index < last; a piece of the view
    count   messages; 0: all
    times   with the times at which the messages entered the queue
    blocks  with the messages themselves
    areas   of the blocks, as in ClaimSource
    """

    queue: str
    states: tuple[str, ...]
    first: int
    last: int
    count: int
    times: bool
    blocks: bool
    areas: int = AREAS


class QueueSource(msgspec.Struct, frozen=True):
    """`/queues/:queue`, to consume single messages."""

    queue: str


class QueueTarget(msgspec.Struct, frozen=True):
    """`/queues/:queue`: through the default exchange, and the queue must exist."""

    queue: str


class ExchangeTarget(msgspec.Struct, frozen=True):
    """`/exchanges/:exchange/:key` or `/exchanges/:exchange`, which has the empty routing key."""

    exchange: str
    key: str


class AnonymousTarget(msgspec.Struct, frozen=True):
    """The null target: each message names its own (`parse_to`)."""


MessageTarget: TypeAlias = QueueTarget | ExchangeTarget | AnonymousTarget
Target: TypeAlias = ManagementNode | StageTarget | BlocksTarget | MessageTarget
Source: TypeAlias = ManagementNode | ClaimSource | BrowseSource | ViewSource | QueueSource


def parse_target(address: str | None, *, blocks: bool = False) -> Target:
    """Parse the address of a client's sender; raises Refusal.

    address  None: the null target
    blocks   the attach says that it is a link of blocks
    """
    if address is None:
        return AnonymousTarget()
    _check_length(address)
    if address == MANAGEMENT:
        return ManagementNode()
    segments, query = _split(address)
    if len(segments) == 3 and segments[2] == "blocks":
        if segments[0] == "queues" and segments[1]:
            _only(address, query, ())
            return BlocksTarget(segments[1], "")
        if segments[0] == "exchanges" and (blocks or not segments[1] or "?" in address):
            _only(address, query, ())
            return BlocksTarget("", segments[1])
    if len(segments) == 3 and segments[0] == "exchanges" and segments[2] == "stage":
        if blocks or not segments[1] or "?" in address:
            return _stage_target(address, segments[1], query)
    if address.startswith(("/queues/", "/exchanges/")):
        target = _message_target(address)
        if target is None:
            raise _bad_address("bad_address_string", _binary(address), TARGET_FORMS)
        return target
    raise _version_1(address, TARGET_FORMS)


def parse_source(address: str | None) -> Source:
    """Parse the address of a client's receiver; raises Refusal.

    address  None: a source without an address
    """
    if address is None:
        raise _bad_address("bad_address", "undefined", SOURCE_FORMS)
    _check_length(address)
    if address == MANAGEMENT:
        return ManagementNode()
    segments, query = _split(address)
    if len(segments) == 3 and segments[0] == "queues" and segments[2] == "browse":
        _only(address, query, ("max", "want"))
        return BrowseSource(segments[1], _number(address, query, "max"), _areas(address, query))
    if len(segments) == 3 and segments[0] == "queues" and segments[2] == "view":
        return _view_source(address, segments[1], query)
    if len(segments) == 6 and segments[0::2] == ["queues", "readers", "claims"]:
        return _claim_source(address, segments, query)
    if address.startswith("/queues/"):
        queue = _name(address[len("/queues/") :])
        if not queue:
            raise _bad_address("bad_address", f"{{utf8,{_binary(address)}}}", SOURCE_FORMS)
        return QueueSource(queue)
    raise _version_1(address, SOURCE_FORMS)


def parse_to(to: str | None) -> QueueTarget | ExchangeTarget:
    """Parse the `to` property of a message on a link with the null target.

    Raises PreconditionFailed, with which the message is rejected.
    """
    if to is None:
        raise PreconditionFailed("anonymous terminus requires 'to' address to be set")
    target = _message_target(to) if len(to) <= ADDRESS_CHARACTERS_MAX else None
    if target is None:
        shown = to if len(to) <= SHOWN_ADDRESS_MAX else to[:SHOWN_ADDRESS_MAX] + "..."
        raise PreconditionFailed(f"bad 'to' address string: {shown}")
    return target


# ------------------------------------------------------------------ addresses of single messages

SHOWN_ADDRESS_MAX = 200
"""Characters of an address in a refusal."""
SOURCE_FORMS = "a source is /queues/:queue, percent-encoded"
TARGET_FORMS = (
    "a target is null, or /queues/:queue, /exchanges/:exchange/:key or /exchanges/:exchange, "
    "percent-encoded"
)


def _message_target(address: str) -> QueueTarget | ExchangeTarget | None:
    """Parse an address of version 2; None: it is none."""
    if address.startswith("/queues/"):
        queue = _name(address[len("/queues/") :])
        return QueueTarget(queue) if queue else None
    if not address.startswith("/exchanges/"):
        return None
    segments = address[len("/exchanges/") :].split("/")
    names = [_name(segment) for segment in segments]
    exchange, key = names[0], names[1] if len(names) == 2 else ""
    if len(names) > 2 or segments[0] in _DEFAULT_EXCHANGE_NAMES or exchange is None or key is None:
        return None
    return ExchangeTarget(exchange, key)


def _name(segment: str) -> str | None:
    """Decode one percent-encoded segment; None: it is malformed, no UTF-8 or too long."""
    if not _ENCODED.fullmatch(segment):
        return None
    try:
        name = unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return None
    return name if len(name.encode()) <= NAME_BYTES_MAX else None


def _bad_address(reason: str, shown: str, forms: str) -> InvalidArgument:
    return InvalidArgument(f"Attach refused: {{{reason},{shown}}}: {forms}")


def _version_1(address: str, forms: str) -> InvalidArgument:
    return _bad_address(
        "amqp_address_v1_not_permitted",
        f"{{utf8,{_binary(address)}}}",
        "RabbitMQ AMQP address version 1 is unsupported. "
        f"Clients must use RabbitMQ AMQP address version 2: {forms}",
    )


def _binary(text: str) -> str:
    """Render a text as RabbitMQ's refusals do: an Erlang binary."""
    shown = text if len(text) <= SHOWN_ADDRESS_MAX else text[:SHOWN_ADDRESS_MAX] + "..."
    escaped = shown.replace("\\", "\\\\").replace('"', '\\"')
    return f'<<"{escaped}">>' if text.isascii() else f'<<"{escaped}"/utf8>>'


# ------------------------------------------------------------------ addresses of blocks


def _stage_target(address: str, exchange: str, query: dict[str, str]) -> StageTarget:
    _only(address, query, STAGE_KEYS)
    return StageTarget(
        exchange,
        _text(address, query, "sink"),
        _text(address, query, "run"),
        _number(address, query, "epoch"),
        _number(address, query, "batch"),
        _number(address, query, "partition"),
        _number(address, query, "attempt"),
        _number(address, query, "seq"),
    )


def _view_source(address: str, queue: str, query: dict[str, str]) -> ViewSource:
    _only(address, query, ("states", "first", "last", "max", "want"))
    wanted = _wanted(address, query, (WANT_TIMES, WANT_BLOCKS, WANT_OUTLINES, *WANT_AREAS))
    areas = AREAS if WANT_BLOCKS in wanted else _areas_of(wanted)
    return ViewSource(
        queue,
        tuple(query.get("states", "").split(",")),
        _number(address, query, "first"),
        _number(address, query, "last"),
        _number(address, query, "max"),
        WANT_TIMES in wanted,
        areas > 0 or WANT_OUTLINES in wanted,
        areas,
    )


def area_words(areas: int) -> list[str]:
    """Return the words of `want` for these areas."""
    return [word for word, area in WANT_AREAS.items() if areas & area]


def _areas(address: str, query: dict[str, str]) -> int:
    """Return the areas that a fetch wants; without a word about it both."""
    if "want" not in query:
        return AREAS
    return _areas_of(_wanted(address, query, tuple(WANT_AREAS)))


def _areas_of(wanted: tuple[str, ...]) -> int:
    return sum(area for word, area in WANT_AREAS.items() if word in wanted)


def _wanted(address: str, query: dict[str, str], known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of `want`; raises InvalidArgument."""
    wanted = tuple(word for word in query.get("want", "").split(",") if word)
    for word in wanted:
        if word not in known:
            raise InvalidArgument(
                f"address {address[:200]!r}: want={word[:40]!r}; known: {', '.join(known)}"
            )
    return wanted


def _claim_source(address: str, segments: list[str], query: dict[str, str]) -> ClaimSource:
    _only(address, query, ("first", "last", "want", *READ_BY_KEYS))
    source = ClaimSource(
        segments[1],
        segments[3],
        _parse_number("claim", segments[5]),
        _number(address, query, "first"),
        _number(address, query, "last"),
        _areas(address, query),
        _read_by(address, query),
    )
    if source.first > source.last:
        raise InvalidArgument(
            f"a slice from {source.first} to {source.last} has its end before its start"
        )
    return source


def _read_by(address: str, query: dict[str, str]) -> ReadBy | None:
    if not any(key in query for key in READ_BY_KEYS):
        return None
    name = _text(address, query, "name") if query.get("name") else ""
    return ReadBy(_text(address, query, "query"), name, _number(address, query, "batch"))


def _check_length(address: str) -> None:
    if len(address) > ADDRESS_CHARACTERS_MAX:
        raise InvalidArgument(
            f"an address of {len(address)} characters; {ADDRESS_CHARACTERS_MAX} is the limit"
        )


def _split(address: str) -> tuple[list[str], dict[str, str]]:
    path, _, query = address.partition("?")
    if not path.startswith("/"):
        return [], {}
    return [unquote(part) for part in path[1:].split("/")], dict(
        parse_qsl(query, keep_blank_values=True)
    )


def _only(address: str, query: dict[str, str], known: tuple[str, ...]) -> None:
    for key in query:
        if key not in known:
            raise InvalidArgument(
                f"address {address[:200]!r}: unknown {key!r}; known: {', '.join(known)}"
            )


def _text(address: str, query: dict[str, str], key: str) -> str:
    value = query.get(key, "")
    if not value or len(value.encode()) > 255:
        raise InvalidArgument(f"address {address[:200]!r}: {key} must have 1 to 255 bytes")
    return value


def _number(address: str, query: dict[str, str], key: str) -> int:
    if key not in query:
        raise InvalidArgument(f"address {address[:200]!r} lacks {key}")
    return _parse_number(key, query[key])


def _parse_number(what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= NUMBER_MAX):
        raise InvalidArgument(f"{what}={text[:40]!r} is not a number from 0 to {NUMBER_MAX}")
    return int(text)
