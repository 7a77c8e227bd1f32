"""What a job of a queue does with which messages, as its leader reads it (`BeginJob.spec`)."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import msgspec

from warren_wire.undecodable import UNDECODABLE

PLACE_BITS: Final = 20
"""Of a message's number, those of its ordinal; a block has fewer messages."""
HOUR_MS: Final = 3_600_000
Aim: TypeAlias = Literal["exchange", "origin"]


class Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which messages are meant: those for which all of this holds.

    filter      a SQL filter expression over properties and headers
    contains    text in the body, as its UTF-8
    priority    of the message
    born_from, born_to  when it entered the queue, in milliseconds since 1970
    reason      of its latest death; origin: the queue in which it died
    hour        of that death, as `hour_of` shows it; of one that did not die: when it was published
    header      NAME=TEXT: a header, and what it is as a text
    index, ordinal  its place in the queue's log; index 0: any
    """

    filter: str = ""
    contains: str = ""
    priority: int | None = None
    born_from: int = 0
    born_to: int = 1 << 62
    reason: str = ""
    origin: str = ""
    hour: str = ""
    header: str = ""
    index: int = 0
    ordinal: int = 0


class Recalls(msgspec.Struct, frozen=True):
    """What a job that is undone has brought, by names of `origin`; it goes back to that group."""

    group: int
    job: int
    origin: int


class JobSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a job does.

    user      of which the permissions count; by_token: they were checked when it began
    vhost     of what it publishes to
    aim       "origin": to the queue in which each message died; else to the exchange
    exchange, routing_key  of what it publishes; routing_key None: each message's own
    rate      messages per second at most; 0: no limit
    headers   that are set, or with None removed; body: instead of the message's
    recalls   of a recall: it takes what this job has brought, and nothing else
    """

    wanted: Wanted = Wanted()
    user: str = ""
    by_token: bool = False
    vhost: str = "/"
    aim: Aim = "exchange"
    exchange: str = ""
    routing_key: str | None = None
    rate: int = 0
    headers: dict[str, Any] = {}
    body: bytes | None = None
    recalls: Recalls | None = None


_DECODER: Final = msgspec.msgpack.Decoder(JobSpec)


def encode_spec(spec: JobSpec) -> bytes:
    """Return a job's spec as bytes."""
    return msgspec.msgpack.encode(spec)


def decode_spec(data: bytes) -> JobSpec:
    """Invert `encode_spec`; keys of a later version are ignored."""
    return _DECODER.decode(data)


def shown_spec(data: bytes) -> bytes:
    """Return a spec without the body that it gives, which no list shows."""
    try:
        spec = decode_spec(data)
    except UNDECODABLE:
        return data
    return data if spec.body is None else encode_spec(msgspec.structs.replace(spec, body=None))


def place_number(index: int, ordinal: int) -> int:
    """Return the number of a message: numbers ascend as the places in the log do."""
    return index << PLACE_BITS | ordinal


def place_of(number: int) -> tuple[int, int]:
    """Invert `place_number`."""
    return number >> PLACE_BITS, number & ((1 << PLACE_BITS) - 1)
