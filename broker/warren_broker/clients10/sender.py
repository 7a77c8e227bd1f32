"""A link on which a client receives fetched messages: of a claim, or browsed, or a queue's view."""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec.structs import replace

from warren_broker.clients10.connection_requests import (
    AnyAnswer,
    Browse,
    FetchClaim,
    Fetched,
    Piece,
    ViewedPiece,
    ViewQueue,
)
from warren_broker.clients10.link import LinkHost, LinkPart
from warren_wire.amqp10 import deliveries
from warren_wire.amqp10.addresses import BrowseSource, ClaimSource, ViewSource
from warren_wire.amqp10.fetched import encode_section_head
from warren_wire.amqp10.proton import Link
from warren_wire.errors import Refusal

FETCH_BYTES = 4 << 20
"""Bytes requested from the cluster at a time."""
_UNBOUNDED = 1 << 62


class PiecesLink(LinkPart):
    """A link that sends pieces, each as a settled message, and closes after the last one.

    It fetches the next pieces while it sends those it has, with at most one request at a time, and
    as `FetchedAhead` allows.
    A drain is answered once pieces have used up the credit; with more credit, the link's end after
    the last piece is the answer.
    """

    def __init__(
        self, link: Link, host: LinkHost, source: ClaimSource | BrowseSource | ViewSource
    ) -> None:
        super().__init__(link, host)
        self._source = source
        self._position = source.first if isinstance(source, ClaimSource) else 0
        self._last = _UNBOUNDED
        if isinstance(source, ClaimSource):
            self._last = source.last
        elif isinstance(source, BrowseSource):
            self._last = source.max_messages
        self._cursor: Any = None
        self._pieces: deque[Piece | ViewedPiece] = deque()
        self._pieces_bytes = 0
        self._asked = False
        self._drain_told = False  # the client waits for the answer
        self._all_fetched = self._position >= self._last
        self._sent = 0
        self.wake()

    def flow(self, *, told: bool = False) -> None:
        """Send more: the client gave credit."""
        self._drain_told = bool(self.link.drain_mode) and (told or self._drain_told)
        self.wake()

    def wake(self) -> bool:
        """Write what credit and the send-ahead bound allow; fetch more if little is left."""
        wrote = False
        while self._pieces and not self.ended and self._has_room():
            self._write(self._pieces.popleft())
            wrote = True
        if self.ended:
            self.gone()
        elif self._all_fetched and not self._pieces:
            self.finish()
        else:
            self.fetch()
        if self._drain_told and not self.ended and self.link.credit == 0:
            self._drain_told = False
            deliveries.give_back_credit(self.link, self.host.lends_credit)
        return wrote

    def fetch(self) -> None:
        """Ask for more, unless what this link has is enough, or other links hold too much."""
        limit = self.host.limits.send_ahead_bytes_max
        if self.ended or self._asked or self._all_fetched or self._pieces_bytes >= limit:
            return
        writes = not self._pieces and self.link.credit > 0 and self.host.ahead.bytes_waiting < limit
        if self.host.fetched.admits(self, writes):
            self._ask()

    def _has_room(self) -> bool:
        return self.link.credit > 0 and self.host.ahead.has_room(self.link.session._impl)

    def gone(self) -> None:
        """Forget what was fetched: the link has ended."""
        self.host.fetched.ended(self, self._pieces_bytes)
        self._pieces.clear()
        self._pieces_bytes = 0

    def _write(self, piece: Piece | ViewedPiece) -> None:
        head = piece.head()
        delivery = self.link.delivery(str(self._sent))
        self._sent += 1
        self.link.stream(encode_section_head(len(head) + len(piece.block)) + head)
        self.link.stream(piece.block)
        self.link.advance()
        delivery.settle()
        size = len(piece.block)
        self._pieces_bytes -= size
        self.host.fetched.written(size)

    def _ask(self) -> None:
        self._asked = True
        source = self._source
        request: FetchClaim | Browse | ViewQueue
        if isinstance(source, ClaimSource):
            request = FetchClaim(replace(source, first=self._position), FETCH_BYTES)
        elif isinstance(source, ViewSource):
            request = ViewQueue(source, self._cursor, FETCH_BYTES)
        else:
            left = self._last - self._position
            request = Browse(source.queue, self._cursor, left, FETCH_BYTES, source.areas)
        self.host.ask(request, self._answered)

    def _answered(self, answer: AnyAnswer) -> None:
        self._asked = False
        if self.ended or isinstance(answer, Refusal):
            self.host.fetched.answered(0)
            if isinstance(answer, Refusal):
                self.refuse(answer)
            self.gone()
            return
        assert isinstance(answer, Fetched), answer
        size = sum(len(piece.block) for piece in answer.pieces)
        self._pieces.extend(answer.pieces)
        self._pieces_bytes += size
        self._position += answer.messages
        self._cursor = answer.cursor
        browsing = not isinstance(self._source, ClaimSource)
        self._all_fetched = (
            self._position >= self._last
            or (answer.messages == 0 and answer.cursor is None)
            or (browsing and answer.cursor is None)
        )
        self.host.fetched.answered(size)
        self.wake()
