"""Frames of a link that Proton makes in part only: flows with properties, or another count.

Proton writes the flow of a sending link only as the answer to a drain, and no properties. What is
missing is added to a frame that it has written: everything that is due is taken before, so that the
frame is whole, and alone. Its handle of a link is told by nothing but the attach that it writes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from warren_wire.amqp10.endings import renew_window
from warren_wire.amqp10.engine import FRAME_HEAD_BYTES, Engine, encode_frame
from warren_wire.amqp10.proton import Data, DataException, Link, symbol, uint

_ATTACH: Final = 0x12
_FLOW: Final = 0x13
_SESSION_FIELDS: Final = 4
_COUNT_FIELD: Final = 5
_WRAP: Final = 0xFFFFFFFF


class LinkAddress(NamedTuple):
    """The channel and handle of a link of this end."""

    channel: int
    handle: int


class LinkFlows:
    """Writes such frames on one connection."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def attach(self, attach: Callable[[], None]) -> LinkAddress | None:
        """Have Proton write the attach that `attach` asks for; return what it says.

        None: it cannot be written, as the connection or the session has ended.
        """
        found: list[LinkAddress] = []

        def look(made: bytearray) -> bytearray:
            for channel, performative, fields in _frames(made):
                if performative == _ATTACH:
                    found.append(LinkAddress(channel, _second_field(fields)))
            return made

        self._engine.apart(attach, look)
        return found[0] if found else None

    def with_count_ahead(self, ask: Callable[[], None], ahead: int) -> None:
        """Have Proton write the flow that `ask` asks for, and add `ahead` to its delivery-count."""

        def change(made: bytearray) -> bytearray:
            channel, fields = _only_flow(made)
            if len(fields) <= _COUNT_FIELD:
                return made
            fields[_COUNT_FIELD] = uint(int(fields[_COUNT_FIELD]) + ahead & _WRAP)
            return encode_frame(channel, _FLOW, fields)

        self._engine.apart(ask, change)

    def tell(
        self,
        link: Link,
        address: LinkAddress,
        delivery_count: int,
        credit: int,
        properties: Mapping[str, Any],
    ) -> None:
        """Write a flow of a sending link with properties, which changes nothing else."""

        def change(made: bytearray) -> bytearray:
            channel, fields = _only_flow(made)
            if len(fields) < _SESSION_FIELDS:
                return made
            state: list[Any] = [uint(address.handle), uint(delivery_count & _WRAP), uint(credit)]
            state += [uint(0), False, False]  # available, drain, echo
            state.append({symbol(key): value for key, value in properties.items()})
            return encode_frame(channel, _FLOW, [*fields[:_SESSION_FIELDS], *state])

        self._engine.apart(lambda: renew_window(link), change)


def _frames(made: bytearray) -> list[tuple[int, int, Data]]:
    """Return (channel, performative, its fields) of whole frames; empty ones are left out.

    Also those that cannot be read: an attach that is answered has what the client said in its own,
    of which Proton checks less than it needs to decode it again.
    """
    found, at = [], 0
    while at + FRAME_HEAD_BYTES < len(made):
        (size,) = struct.unpack_from(">I", made, at)
        if size > FRAME_HEAD_BYTES:
            fields = Data()
            try:
                fields.decode(bytes(made[at + FRAME_HEAD_BYTES : at + size]))
                fields.rewind()
                fields.next()
                fields.enter()
                fields.next()
                performative = fields.get_ulong()
            except DataException:
                at += size
                continue
            found.append((struct.unpack_from(">H", made, at + 6)[0], performative, fields))
        at += max(size, FRAME_HEAD_BYTES)
    return found


def _second_field(fields: Data) -> int:
    fields.next()
    fields.enter()
    fields.next()
    fields.next()
    return int(fields.get_uint())


def _only_flow(made: bytearray) -> tuple[int, list[Any]]:
    """Return the channel and fields of one frame that is a flow; no fields: it is not."""
    if len(made) < FRAME_HEAD_BYTES or struct.unpack_from(">I", made)[0] != len(made):
        return 0, []
    ((channel, performative, fields),) = _frames(made) or [(0, 0, Data())]
    if performative != _FLOW:
        return 0, []
    fields.rewind()
    fields.next()
    return channel, list(fields.get_object().value)
