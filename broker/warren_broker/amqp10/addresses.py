"""The parser of link addresses."""

from __future__ import annotations

from typing import TypeAlias
from urllib.parse import parse_qsl, unquote

import msgspec

from warren_broker.errors import InvalidArgument, NotImplementedHere

MANAGEMENT = "/management"
NUMBER_MAX = (1 << 63) - 1
ADDRESS_CHARACTERS_MAX = 4096
STAGE_KEYS = ("sink", "run", "epoch", "batch", "partition", "attempt", "seq")


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
    """`/queues/:q/readers/:reader/claims/:number?first=&last=`."""

    queue: str
    reader: str
    number: int
    first: int
    last: int


class BrowseSource(msgspec.Struct, frozen=True):
    """`/queues/:q/browse?max=`."""

    queue: str
    max_messages: int


Target: TypeAlias = ManagementNode | StageTarget | BlocksTarget
Source: TypeAlias = ManagementNode | ClaimSource | BrowseSource


def parse_target(address: str) -> Target:
    """Parse the address of a client's sender; raises Refusal."""
    segments, query = _split(address)
    if segments == ["management"]:
        return ManagementNode()
    if len(segments) == 3 and segments[2] == "blocks":
        _only(address, query, ())
        if segments[0] == "queues" and segments[1]:
            return BlocksTarget(segments[1], "")
        if segments[0] == "exchanges":
            return BlocksTarget("", segments[1])
    if len(segments) == 3 and segments[0] == "exchanges" and segments[2] == "stage":
        _only(address, query, STAGE_KEYS)
        return StageTarget(
            segments[1],
            _text(address, query, "sink"),
            _text(address, query, "run"),
            _number(address, query, "epoch"),
            _number(address, query, "batch"),
            _number(address, query, "partition"),
            _number(address, query, "attempt"),
            _number(address, query, "seq"),
        )
    raise _unknown("target", address)


def parse_source(address: str) -> Source:
    """Parse the address of a client's receiver; raises Refusal."""
    segments, query = _split(address)
    if segments == ["management"]:
        return ManagementNode()
    if len(segments) == 3 and segments[0] == "queues" and segments[2] == "browse":
        _only(address, query, ("max",))
        return BrowseSource(segments[1], _number(address, query, "max"))
    if len(segments) == 6 and segments[0::2] == ["queues", "readers", "claims"]:
        _only(address, query, ("first", "last"))
        source = ClaimSource(
            segments[1],
            segments[3],
            _parse_number("claim", segments[5]),
            _number(address, query, "first"),
            _number(address, query, "last"),
        )
        if source.first > source.last:
            raise InvalidArgument(
                f"a slice from {source.first} to {source.last} has its end before its start"
            )
        return source
    raise _unknown("source", address)


def _split(address: str) -> tuple[list[str], dict[str, str]]:
    if len(address) > ADDRESS_CHARACTERS_MAX:
        raise InvalidArgument(
            f"an address of {len(address)} characters; {ADDRESS_CHARACTERS_MAX} is the limit"
        )
    path, _, query = address.partition("?")
    if not path.startswith("/"):
        return [], {}
    return [unquote(part) for part in path[1:].split("/")], dict(
        parse_qsl(query, keep_blank_values=True)
    )


def _unknown(side: str, address: str) -> NotImplementedHere:
    return NotImplementedHere(
        f"{side} address {address[:200]!r}: this listener has /management, and for blocks "
        "/queues/:q/blocks, /exchanges/:x/blocks, /exchanges/:x/stage, /queues/:q/browse, "
        "/queues/:q/readers/:r/claims/:n; to send or receive single messages use AMQP 0.9.1"
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
