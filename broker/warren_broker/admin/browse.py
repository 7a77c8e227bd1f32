"""Handler of the request to look at messages."""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.shown_values import shown
from warren_broker.cluster.client.reads import ReadFailed
from warren_broker.cluster.client.view_reads import Kept
from warren_broker.cluster.message_match import MessageMatch
from warren_broker.cluster.messages import ViewIs
from warren_machines.metadata.records import QueueRecord
from warren_machines.queue.annotations import encoded_annotation
from warren_machines.queue.places import BrowsedRows, BrowsePlace, Key, ViewRow, place_in
from warren_wire import errors
from warren_wire.admin.browse import (
    BrowsedMessage,
    BrowsedPage,
    BrowseRequest,
    Encoding,
    SelectingRequest,
    wanted_states,
)
from warren_wire.admin.requests import Result
from warren_wire.amqp091 import properties as codec
from warren_wire.amqp10.message.sent import encode_message
from warren_wire.amqp10.proton import Data, Message, MessageException
from warren_wire.block.block import Block
from warren_wire.block.layout import AREAS
from warren_wire.kernel import is_owned, readable, split_sections
from warren_wire.message_states import DEAD, STATES
from warren_wire.undecodable import UNDECODABLE

MESSAGES_LOOKED_MAX: Final = 20_000
"""Messages that one request looks at; BROWSED_BYTES_MAX: of them that it reads."""
BROWSED_BYTES_MAX: Final = 64 << 20
PLACES_MAX: Final = 1_000
"""Messages that are found at a time, and may be read in one turn of the loop."""
TURN_BYTES_MAX: Final = 1 << 20
"""Bytes read in one turn, but for a message that is larger."""
MATCHING_MS: Final = 10
"""Time of a turn for the filter, of all browsers; the message at hand is not interrupted."""
BROWSED_ANSWER_BYTES: Final = 4 << 20
BROWSED_ANSWER_PARTS: Final = 30_000
"""Values in an answer, with those inside of others: Proton's hold 65,535."""
_PARTS: Final = 30
"""Values of a message beside its properties, headers and annotations."""
_PLACES: Final = msgspec.msgpack.Decoder(tuple[int, BrowsePlace])
_Named = tuple[ViewRow, tuple[str, Key]]
"""A row and its key."""


def encode_after(origin: int, place: BrowsePlace) -> str:
    """Return a place as clients have it."""
    packed = msgspec.msgpack.encode((origin, place))
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode_after(text: str) -> tuple[int, BrowsePlace | None]:
    """Invert `encode_after`; "": the beginning. Raises InvalidArgument."""
    if not text:
        return 0, None
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        origin, place = _PLACES.decode(packed)
    except (binascii.Error, ValueError, *UNDECODABLE):
        place = None
    if place is None or not place.is_one:
        raise errors.InvalidArgument(f"after={text[:40]!r}: give `next` of an earlier page")
    return origin, place


class Browsing(ABC):
    """One request about messages, in turns: places are found, messages read, and matched.

    It ends when the page is full, when nothing is left, or at one of the bounds above: then the
    page has what was found, and the next one continues behind the last message looked at.
    """

    def __init__(
        self,
        asker: Asker,
        queue: QueueRecord,
        request: SelectingRequest[Any],
        states: str,
        after: str,
        answer: Answer,
    ) -> None:
        self._asker = asker
        self._group = queue.group
        self._states = wanted_states(states)
        self._answer = answer
        self._loop = asker.broker.cluster.loop
        self._wanted = MessageMatch(request.wanted(self._loop.clock.epoch_ms()))
        self._origin, self._place = decode_after(after)
        self._page = BrowsedRows((), (), (), True, ())
        self._rows: list[_Named] = []
        self._annotations: dict[tuple[int, int], dict[str, Any]] = {}
        self._current = True
        self._looked = self._read_bytes = 0

    def begin(self) -> None:
        """Answer later."""
        done = self._asker.guard(self._begun)
        self._asker.broker.viewing.when_current(self._group, done)

    def _begun(self, current: bool) -> None:
        self._current = current
        self._ask()

    def _full(self) -> bool:
        bounds = self._looked >= MESSAGES_LOOKED_MAX or self._read_bytes >= BROWSED_BYTES_MAX
        return bounds or self.is_full()

    @abstractmethod
    def is_full(self) -> bool:
        """Return whether the answer takes no more."""

    def reads(self) -> bool:
        """Return whether messages must be read before it is known which are meant."""
        return self._wanted.reads

    def most(self) -> int:
        """Return how many of the next messages the answer takes."""
        return PLACES_MAX

    @abstractmethod
    def take(self, row: ViewRow, block: Block | None, at: int, born_ms: int, why: str) -> None:
        """Take a message that is meant; why: it cannot be read."""

    @abstractmethod
    def answered(self, behind: str) -> Result:
        """Return the answer; behind: where the next one continues."""

    def _go_on(self) -> None:
        """Read what is known to be there, find more, or answer."""
        if self._full() or not (self._rows or self._page.more):
            over = not (self._rows or self._page.more)
            place = self._place
            behind = "" if over or place is None else encode_after(self._origin, place)
            self._answer(self.answered(behind))
            return
        step = self._read if self._rows else self._ask
        self._loop.call_soon(self._asker.guard(step))

    def _ask(self) -> None:
        """Find the places of the next messages."""
        self._asker.broker.viewing.browse(
            self._group,
            self._states,
            self._place,
            self._origin,
            PLACES_MAX if self.reads() else min(PLACES_MAX, self.most()),
            self._asker.guard(self._placed),
        )

    def _placed(self, found: ViewIs | ReadFailed) -> None:
        if isinstance(found, ReadFailed):
            self._failed(found)
            return
        assert found.browsed is not None
        self._page, self._origin = found.browsed, found.origin
        self._rows = list(zip(self._page.rows, self._page.keys, strict=True))
        self._annotations = {
            (index, ordinal): {name: _annotation(encoded_annotation(kept)) for name, kept in pairs}
            for index, ordinal, pairs in self._page.annotations
        }
        self._go_on()

    def _read(self) -> None:
        runs = tuple(row[2:7] for row, _ in self._rows)
        done = self._asker.guard(self._kept)
        viewing = self._asker.broker.viewing
        viewing.kept(self._group, runs, TURN_BYTES_MAX, True, True, AREAS, done)

    def _kept(self, kept: Kept | ReadFailed) -> None:
        if isinstance(kept, ReadFailed):
            if kept.unavailable:
                self._failed(kept)
            else:
                self._pass_over(kept.detail)
            return
        gone = frozenset(kept.gone)
        while self._rows and self._rows[0][0][2] in gone:
            self._place = place_in(*self._rows.pop(0))
        self._rows = [one for one in self._rows if one[0][2] not in gone]
        self._read_bytes += len(kept.block)
        if not kept.messages:
            self._go_on()
            return
        self._in_turn(Block.decode(kept.block), dict(kept.times), 0)

    def _in_turn(self, block: Block, times: dict[int, int], at: int) -> None:
        """Look on when it is this browser's turn: one for all browsers of the node."""
        look = self._asker.guard(partial(self._look, block, times, at))
        self._asker.broker.publishing.shares.of("browsing").run_alone(look)

    def _look(self, block: Block, times: dict[int, int], at: int) -> None:
        """Ask about the messages of a block from `at` on, for as long as a turn may take."""
        until = self._loop.clock.monotonic_ms() + MATCHING_MS
        while at < block.count and not self._full():
            self._one(block, at, times.get(self._rows[0][0][2], 0))
            at += 1
            if self._loop.clock.monotonic_ms() >= until and at < block.count:
                self._in_turn(block, times, at)
                return
        self._go_on()

    def _pass_over(self, why: str) -> None:
        """Pass over the first message that is left, which no member can read."""
        self._one(None, 0, 0, why)
        self._go_on()

    def _one(self, block: Block | None, at: int, born_ms: int, why: str = "") -> None:
        """Look at the first message that is left."""
        row, key = self._rows[0]
        ordinal = row[3]
        if ordinal < row[4]:
            self._rows[0] = ((*row[:3], ordinal + 1, *row[4:]), key)
        else:
            del self._rows[0]
        self._place = place_in(row, key, ordinal)
        self._looked += 1
        if self._wanted.takes(block, at, born_ms):
            self.take(row, block, at, born_ms, why)

    def _failed(self, failed: ReadFailed) -> None:
        kind = errors.Unavailable if failed.unavailable else errors.PreconditionFailed
        self._answer(kind(failed.detail))


class _Pages(Browsing):
    """A page of messages."""

    def __init__(
        self, asker: Asker, queue: QueueRecord, request: BrowseRequest, answer: Answer
    ) -> None:
        super().__init__(asker, queue, request, request.states, request.after, answer)
        self._request = request
        self._found: list[BrowsedMessage] = []
        self._bytes = self._parts = 0

    def is_full(self) -> bool:
        """See `Browsing`."""
        return (
            len(self._found) >= self._request.count
            or self._bytes >= BROWSED_ANSWER_BYTES
            or self._parts >= BROWSED_ANSWER_PARTS
        )

    def most(self) -> int:
        """See `Browsing`."""
        return self._request.count - len(self._found)

    def answered(self, behind: str) -> BrowsedPage:
        """See `Browsing`."""
        return BrowsedPage(tuple(self._found), behind, self._looked, self._current)

    def take(self, row: ViewRow, block: Block | None, at: int, born_ms: int, why: str) -> None:
        """See `Browsing`."""
        behind = "" if self._place is None else encode_after(self._origin, self._place)
        standing = self._standing(row)
        made = replace(standing, published_at=born_ms, place=behind, unreadable=why)
        if block is not None:
            annotations = self._annotations.get((row[2], row[3]), {})
            made = _with_content(made, block, at, annotations, self._request.body_bytes)
        self._bytes += len(made.body) + len(str(made.headers)) + len(str(made.annotations))
        self._parts += _PARTS + sum(map(_parts, (made.properties, made.headers, made.annotations)))
        self._found.append(made)

    def _standing(self, row: ViewRow) -> BrowsedMessage:
        state = STATES[row[0]]
        name, node, session = ("", "", 0) if row[1] < 0 else self._page.holders[row[1]]
        is_dead, name = state == DEAD, shown(name)
        return BrowsedMessage(
            row[2],
            row[3],
            state,
            holder="" if is_dead else name,
            reason=name if is_dead else "",
            node=node,
            session=session,
            claim=row[9],
            delivery_count=row[5],
            acquired_count=row[6],
            since=row[7],
            next_at=row[8],
        )


def _with_content(
    made: BrowsedMessage, block: Block, at: int, annotations: dict[str, Any], most: int
) -> BrowsedMessage:
    """Return a message with what it says."""
    raw = readable(bytes(block.properties(at)))
    listed, kept = split_sections(raw)
    said = codec.select(listed, frozenset(codec.NAMES))
    headers = {name: field.value for name, field in said.pop("headers", ())}
    exchange, key = (part.decode("utf-8", "replace") for part in block.route(at))
    body = block.body(at)
    text, encoding = shown_body(bytes(body[:most]), len(body))
    if kept:
        annotations = {**_own_annotations(raw, block, at), **annotations}
    return replace(
        made,
        priority=block.priority(at),
        exchange=exchange,
        routing_key=key,
        properties=shown(said),
        headers=shown(headers),
        annotations=shown(annotations),
        body=text,
        encoding=encoding,
        body_bytes=len(body),
    )


def shown_body(first: bytes, size: int) -> tuple[str, Encoding]:
    """Return the first bytes of a body of that size: as text, or in Base64 when they are none.

    A character that is cut in two is left out.
    """
    for less in range(4 if len(first) < size else 1):
        try:
            return first[: len(first) - less].decode(), "text"
        except UnicodeDecodeError:
            continue
    return base64.b64encode(first).decode(), "base64"


def _own_annotations(raw: bytes, block: Block, at: int) -> dict[str, Any]:
    """Return the annotations that a publisher over AMQP 1.0 has given."""
    route = block.route(at)
    parts = encode_message(block.form, raw, b"", exchange=route[0], routing_key=route[1])
    message = Message()
    try:
        message.decode(b"".join(map(bytes, parts)))
    except (MessageException, *UNDECODABLE):
        return {}
    found = message.annotations or {}
    return {str(k): v for k, v in found.items() if not is_owned(str(k).encode())}


def _annotation(encoded: bytes) -> Any:
    data = Data()
    data.decode(encoded)
    data.rewind()
    return data.get_object() if data.next() is not None else None


def _parts(value: Any) -> int:
    """Count a value with those inside of it."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(_parts, value.values()))
    return 1 + sum(map(_parts, value)) if isinstance(value, list) else 1


def _browse(asker: Asker, request: BrowseRequest, answer: Answer) -> None:
    asker.access.browse_queue(request.name)
    queue = asker.queue(request.name, store=True)
    _Pages(asker, queue, request, answer).begin()
