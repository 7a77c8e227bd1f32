"""Functions of Proton's engine, for the interpreted kernel: objects are addresses.

The compiled modules take `compiled/proton_calls.pxd` instead, which calls them in C. There is one
engine in a process: `attach` says where it is.
"""

from __future__ import annotations

from typing import Any

_engine: dict[str, Any] = {}


def attach(ffi: Any, lib: Any) -> None:
    """Take note of cffi's module of the engine."""
    cast = ffi.cast
    _engine.update(
        ffi=ffi,
        lib=lib,
        at=lambda pointer: int(cast("uintptr_t", pointer)),
        collector=lambda at: cast("pn_collector_t *", at),
        event=lambda at: cast("pn_event_t *", at),
        delivery=lambda at: cast("pn_delivery_t *", at),
        link=lambda at: cast("pn_link_t *", at),
    )


def _call(name: str, kind: str, at: int, *more: object) -> Any:
    return getattr(_engine["lib"], name)(_engine[kind](at), *more)


def pn_peek(collector: int) -> int:
    """Return the first event; 0: there is none."""
    return int(_engine["at"](_call("pn_collector_peek", "collector", collector)))


def pn_pop(collector: int) -> None:
    """Drop the first event."""
    _call("pn_collector_pop", "collector", collector)


def pn_kind(event: int) -> int:
    """Return an event's type."""
    return int(_call("pn_event_type", "event", event))


def pn_event_of(event: int) -> int:
    """Return the delivery of an event."""
    return int(_engine["at"](_call("pn_event_delivery", "event", event)))


def pn_link_of(delivery: int) -> int:
    """Return the link of a delivery."""
    return int(_engine["at"](_call("pn_delivery_link", "delivery", delivery)))


def pn_partial(delivery: int) -> bool:
    """Return whether more of a delivery is to come."""
    return bool(_call("pn_delivery_partial", "delivery", delivery))


def pn_aborted(delivery: int) -> bool:
    """Return whether the peer has aborted a delivery."""
    return bool(_call("pn_delivery_aborted", "delivery", delivery))


def pn_settled(delivery: int) -> bool:
    """Return whether the peer has settled a delivery."""
    return bool(_call("pn_delivery_settled", "delivery", delivery))


def pn_pending(delivery: int) -> int:
    """Return the bytes of a delivery that are there and were not read."""
    return int(_call("pn_delivery_pending", "delivery", delivery))


def pn_state(delivery: int) -> int:
    """Return the state that the peer has given a delivery; 0: none."""
    return int(_call("pn_delivery_remote_state", "delivery", delivery))


def pn_update(delivery: int, state: int) -> None:
    """Give a delivery a state."""
    _call("pn_delivery_update", "delivery", delivery, state)


def pn_settle(delivery: int) -> None:
    """Settle a delivery."""
    _call("pn_delivery_settle", "delivery", delivery)


def pn_current(link: int) -> int:
    """Return the delivery that a link reads or writes; 0: none."""
    return int(_engine["at"](_call("pn_link_current", "link", link)))


def pn_advance(link: int) -> None:
    """Have a link read or write its next delivery."""
    _call("pn_link_advance", "link", link)


def pn_recv(link: int, to: bytearray | memoryview, size: int) -> None:
    """Read so many bytes of the current delivery."""
    _call("pn_link_recv", "link", link, _engine["ffi"].from_buffer(to), size)


def pn_send(link: int, data: bytes | memoryview, size: int) -> None:
    """Write bytes to the current delivery."""
    _call("pn_link_send", "link", link, _engine["ffi"].from_buffer(data), size)


def pn_begin(link: int, number: int) -> int:
    """Begin a delivery of which the tag is a number in decimal digits."""
    digits, named = b"%d" % number, _engine["ffi"].new("pn_bytes_t *")
    start = _engine["ffi"].from_buffer(digits)
    named.start, named.size = start, len(digits)
    return int(_engine["at"](_call("pn_delivery", "link", link, named[0])))
