"""Fields that the engine decodes when they are read, and that may be anything then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from warren_wire.amqp10.proton import Connection, Link, ProtonException, Terminus, ffi, lib
from warren_wire.errors import InvalidArgument, SyntaxRefused

_TERMINUS_FIELDS: Final = {
    "dynamic-node-properties": lib.pn_terminus_properties,
    "filter": lib.pn_terminus_filter,
    "outcomes": lib.pn_terminus_outcomes,
    "capabilities": lib.pn_terminus_capabilities,
}


def check_attach(link: Link) -> None:
    """Raise SyntaxRefused when a field of an attach that came cannot be decoded.

    The engine decodes such a field when it is first asked for, and keeps what it has read up to the
    fault. An array that misses elements then ends the process when it is written again, as an
    answer to the attach writes it: check before anything is copied.
    """
    handle = link._impl
    _check("link properties", lib.pn_link_remote_properties(handle))
    for end, terminus in (
        ("source", lib.pn_link_remote_source(handle)),
        ("target", lib.pn_link_remote_target(handle)),
    ):
        for name, field in _TERMINUS_FIELDS.items():
            _check(f"{name} of the {end}", field(terminus))


def link_name(link: Link) -> str:
    """Return the name in an attach; raises SyntaxRefused for null or no string, UnicodeDecodeError.

    The engine pairs links by name, and the node their consumers: it cannot be answered.
    """
    name = link.name
    if name is None:
        raise SyntaxRefused("an attach without a name: every link has one, a string")
    return str(name)


def check_open(connection: Connection) -> None:
    """Raise SyntaxRefused when the properties of an open that came cannot be decoded."""
    _check("properties of open", lib.pn_connection_remote_properties(connection._impl))


def _check(what: str, data: object) -> None:
    if data == ffi.NULL:
        return
    code = lib.pn_error_code(lib.pn_data_error(data))
    if code == 0 and lib.pn_data_encoded_size(data) >= 0:
        return
    why = "it ends too early" if code else "an array has other elements than it says"
    raise SyntaxRefused(f"{what}: the encoded value cannot be read: {why}")


def encoded_value(what: str, data: object) -> bytes:
    """Return what the peer sent, encoded again, b"" for nothing; raises SyntaxRefused.

    The engine miscounts lists with values that are described twice: the caller checks everything.

    what  names it in the error
    data  the engine's
    """
    _check(what, data)
    size = 0 if data == ffi.NULL else lib.pn_data_encoded_size(data)
    encoded = bytearray(size)
    if size and lib.pn_data_encode(data, ffi.from_buffer(encoded), size) != size:
        raise SyntaxRefused(f"{what}: the encoded value cannot be written again")
    return bytes(encoded)


def repeat_address(here: Terminus, there: Terminus) -> None:
    """Answer a terminus of the client with its address alone, which may be any bytes, or none."""
    given = there._impl
    if lib.pn_terminus_get_type(given) == Terminus.UNSPECIFIED:
        here.type = Terminus.UNSPECIFIED
    else:
        lib.pn_terminus_set_address(here._impl, lib.pn_terminus_get_address(given))


def read_map(what: str, read: Callable[[], object]) -> dict[Any, Any]:
    """Return a map that the peer may have sent, {} if it has not; raises InvalidArgument.

    what  names it in the error
    """
    try:
        value = read()
    except (ArithmeticError, RecursionError, TypeError, ValueError, ProtonException) as error:
        raise InvalidArgument(f"{what} cannot be read: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument(f"{what} must be a map, not a value of type {type(value).__name__}")
    return value
