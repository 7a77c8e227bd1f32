"""Proton's deliveries without the objects that its Python binding makes of each.

Proton's engine spends less than half a microsecond on a small message, its binding about twenty:
an event, a delivery and a link for every transfer and disposition, each with a table of attributes
in Proton's memory. Here a delivery is a `Handle`, the engine's own pointer, and what is done with
it is one call of the engine. Where there are many, each such call is still a third of a
microsecond: what is usual goes through `CALLS`, which has the engine handle a whole run of
deliveries. There they are addresses.

Neither must be used once the delivery was settled or its link freed: no reference keeps it.
So links use no handle once they have ended (`LinkPart.ended`), which they do before they are freed,
and a link that settles a delivery forgets its handle first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

from warren_wire.amqp10.proton import Delivery, Link, Session, ffi, lib
from warren_wire.block.block import Block
from warren_wire.kernel import EngineCalls, Unsettled

Handle: TypeAlias = Any
"""A pointer to a delivery or a link; equal and of the same hash where it points to the same."""
Address: TypeAlias = int
"""The same as a number, 0 for none."""

CALLS: Final = EngineCalls(ffi, lib)
ACCEPTED: Final = int(Delivery.ACCEPTED)
REJECTED: Final = int(Delivery.REJECTED)
RELEASED: Final = int(Delivery.RELEASED)
DIGITS_MAX: Final = 20
"""A number of 64 bits in decimal digits."""
JOINED_BYTES: Final = 1 << 12
"""Pieces of a sent message that are together smaller are copied into one."""
TRANSFER_HEAD_BYTES: Final = 128
"""The head of a transfer's frame has no more, without the delivery's tag."""

_NOTHING: Final = ffi.NULL


def handle_of(wrapper: Delivery | Link | Session) -> Handle:
    """Return the pointer that an object of Proton's binding stands for."""
    return wrapper._impl


def address_of(handle: Handle) -> Address:
    """Return where a pointer points to."""
    return int(ffi.cast("uintptr_t", handle))


def delivery_at(address: Address) -> Handle:
    """Return the pointer to a delivery."""
    return ffi.cast("pn_delivery_t *", address)


def session_of(link: Link) -> Handle:
    """Return the pointer to a link's session."""
    return lib.pn_link_session(link._impl)


def give_back_credit(link: Link, lends_credit: bool) -> None:
    """Answer a drain of a sending link, on which nothing more is to be sent.

    The answer is a flow, whether there was credit to give back or not. Proton makes none without
    credit. So the link is lent one that Proton does not know from the peer, and gives it back:
    `pn_link_drained` counts the application's credit, and then advances the delivery-count by what
    the peer gave, which is nothing, or less: see `Outbox.behind`.

    lends_credit  False: the engine was compiled with assertions, one of which is that this function
                  is for receivers; then there is no answer, as from Proton itself
    """
    sender: Handle = link._impl
    if not lib.pn_link_get_drain(sender):
        return
    credit = lib.pn_link_credit(sender)
    if credit <= 0 and lends_credit:
        lib.pn_link_flow(sender, 1 - credit)
    lib.pn_link_drained(sender)


def wrapped(delivery: Handle) -> Delivery:
    """Return the binding's object, for what is rare."""
    return Delivery(delivery)


def whole_messages(link: Handle, bytes_max: int) -> Iterator[tuple[Handle, bytearray, bool]]:
    """Read a receiving link's deliveries while they are all there and within the limit.

    Yields (delivery, message, whether the client has settled it); the link is then at the next one.
    """
    while True:
        delivery = lib.pn_link_current(link)
        if delivery == _NOTHING or lib.pn_delivery_partial(delivery):
            return
        size = lib.pn_delivery_pending(delivery)
        if size > bytes_max or lib.pn_delivery_aborted(delivery):
            return
        yield delivery, _read(link, size), bool(lib.pn_delivery_settled(delivery))


def is_current(link: Handle, delivery: Handle) -> bool:
    """Return whether it is the delivery that the link reads or writes."""
    return bool(lib.pn_link_current(link) == delivery)


def holds_transfer(link: Link) -> bool:
    """Return whether the peer has sent a transfer on a link of which this end is the sender.

    Proton takes it for a delivery of this end, to which the next message would be written. This end
    advances each delivery when it writes it, so that none of its own is ever the current one.
    """
    return bool(link.is_sender and lib.pn_link_current(link._impl) != _NOTHING)


def read_message(link: Handle, delivery: Handle) -> tuple[Handle, bytearray, bool]:
    """Read the link's current delivery, which is whole; return as `whole_messages` yields."""
    data = _read(link, lib.pn_delivery_pending(delivery))
    return delivery, data, bool(lib.pn_delivery_settled(delivery))


def _read(link: Handle, size: int) -> bytearray:
    data = bytearray(size)
    if size:
        lib.pn_link_recv(link, ffi.from_buffer(data), size)
    lib.pn_link_advance(link)
    return data


def is_settled(delivery: Handle) -> bool:
    """Return whether the peer has settled the delivery."""
    return bool(lib.pn_delivery_settled(delivery))


def peer_outcome(delivery: Handle) -> int:
    """Return the outcome that the peer has given; 0: none."""
    return int(lib.pn_delivery_remote_state(delivery))


def tag_of(delivery: Handle) -> bytes:
    """Return a delivery's tag."""
    tag = lib.pn_delivery_tag(delivery)
    return bytes(ffi.buffer(tag.start, tag.size))


def peer_annotations(wrapper: Delivery) -> Handle:
    """Return the engine's data with the annotations of the peer's outcome, which is modified."""
    return lib.pn_disposition_annotations(lib.pn_delivery_remote(wrapper._impl))


def begin(link: Handle, tag: bytes) -> Handle:
    """Begin a delivery on a sending link; its tag may be any bytes."""
    given = ffi.new("pn_bytes_t *")
    named = ffi.from_buffer(tag)
    given.start, given.size = named, len(tag)
    return lib.pn_delivery(link, given[0])  # which copies the tag


def settle(delivery: Handle) -> None:
    """Settle a delivery, without an outcome of this end, and forget it."""
    lib.pn_delivery_settle(delivery)


def settle_as(delivery: Handle, outcome: int) -> None:
    """Settle a delivery with an outcome that needs no more than its name, and forget it."""
    lib.pn_delivery_update(delivery, outcome)
    lib.pn_delivery_settle(delivery)


def abort(delivery: Handle) -> None:
    """Settle a delivery of this end, and drop what was not sent of it."""
    lib.pn_delivery_abort(delivery)


def tell_outcome(delivery: Handle, outcome: int) -> None:
    """Give a delivery an outcome, and do not settle it."""
    lib.pn_delivery_update(delivery, outcome)


class Frames(Protocol):
    """The frames of a connection.

    written_bytes  the size of those in which messages are written, as `make_frames` makes them
    """

    @property
    def written_bytes(self) -> int: ...

    def make_frames(self) -> None:
        """Make frames of all that was written, as far as it may leave."""

    def take_outcomes(self, link: Link, unsettled: Unsettled, told: Callable[[], None]) -> None:
        """Have outcomes without fields of a sending link's deliveries taken, and `told` called."""


class Outbox:
    """A sending link: what it takes, and messages that are written to it.

    A client may give less credit than what is under way to it has used. Proton's answer to a drain
    then takes its delivery-count back by the difference: it is `behind` what has been sent, and as
    much too generous with all credit that the client gives, which is told by the true count.

    Messages larger than a frame are written in pieces, of which each becomes a frame before the
    next one is written.

    1. Proton copies what is written into a buffer of the delivery, as large as all of it, and keeps
    that until the delivery is settled; afterwards a next delivery of the connection has it.
    2. A client reads many large messages, and settles none.  3. The node would have each of them in
    memory, though nothing of them is in use. A buffer that is emptied in between has no more than a
    piece.  4. The session's window is closed: what cannot leave is written all the same, so that
    a delivery is always whole, but no other message of the link is before that has left.
    Replayed by tests/broker/clients10/test_large_deliveries.py

    behind      how far; the next drain with credit makes up for it
    given_back  credit that answers to drains have given back
    """

    def __init__(self, link: Link, frames: Frames) -> None:
        self.behind = self.given_back = self._written = 0
        self._make_frames = frames.make_frames
        self._piece_bytes = frames.written_bytes - TRANSFER_HEAD_BYTES
        self._in_pieces = False  # the last message was
        self._link: Handle = link._impl
        self._address = address_of(self._link)
        self._session: Handle = lib.pn_link_session(self._link)
        self._tag = ffi.new("pn_bytes_t *")

    @property
    def credit(self) -> int:
        """The messages that the client takes; below 0: more are under way than it takes now."""
        return int(lib.pn_link_credit(self._link)) - self.behind

    @property
    def delivery_count(self) -> int:
        """The link's delivery-count, as sent; not while an answer to a drain is held back."""
        return self._written - int(lib.pn_link_queued(self._link)) + self.given_back

    def has_room(self, room_on: Callable[[Handle], bool]) -> bool:
        """Return whether there is credit, and room on the session."""
        if lib.pn_link_credit(self._link) <= self.behind or not room_on(self._session):
            return False
        return not self._in_pieces or self._has_left()

    def _has_left(self) -> bool:
        """Return whether frames were made of all that was written."""
        if lib.pn_link_queued(self._link):
            self._make_frames()
        self._in_pieces = lib.pn_link_queued(self._link) > 0
        return not self._in_pieces

    def write(self, tag: bytes, pieces: list[Any], size: int) -> Handle:
        """Write a whole message of `size` bytes; there is room."""
        named = ffi.from_buffer(tag)
        self._tag.start, self._tag.size = named, len(tag)
        link = self._link
        delivery = lib.pn_delivery(link, self._tag[0])  # which copies the tag
        if size <= JOINED_BYTES:
            pieces = [b"".join(pieces)]
        if size <= self._piece_bytes:
            for piece in pieces:
                lib.pn_link_send(link, ffi.from_buffer(piece), len(piece))
        else:
            self._write_in_pieces(delivery, pieces, self._piece_bytes - len(tag))
        lib.pn_link_advance(link)
        self._written += 1
        return delivery

    def write_run(
        self,
        block: Block,
        places: range,
        like: tuple[bytes, bytes],
        tag: int,
        limits: tuple[int, int],
        unsettled: Unsettled | None,
    ) -> tuple[int, int]:
        """Write small messages that are alike; see `EngineCalls.write`.

        places  of them in the block; for each there is credit
        limits  (bytes that there is room for, the largest message that the client takes)
        """
        room, most = limits
        limits = (room, min(most, self._piece_bytes - DIGITS_MAX))
        of = (places.start, places.stop)
        count, size = CALLS.write(self._address, block, *of, like, tag, limits, unsettled)
        self._written += count
        return count, size

    def _write_in_pieces(self, delivery: Handle, parts: list[Any], piece_bytes: int) -> None:
        self._in_pieces = leaves = True
        room = piece_bytes
        for each in parts:
            part = memoryview(each)
            at = 0
            while at < len(part):
                if not room:
                    room = piece_bytes
                    if leaves:
                        self._make_frames()
                        leaves = not lib.pn_delivery_pending(delivery)
                piece = part[at : at + room]
                lib.pn_link_send(self._link, ffi.from_buffer(piece), len(piece))
                at += len(piece)
                room -= len(piece)
