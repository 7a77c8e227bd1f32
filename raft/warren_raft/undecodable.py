"""The errors of a decoder of MessagePack or JSON for bytes that come from outside.

Bytes of a peer, of a client or of a file are refused with an error of the module that decodes them.
What msgspec raises for them has no common base: a text that is no UTF-8 is a UnicodeDecodeError;
values that are nested too deep are a RecursionError, even in a field that the type does not know.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""For an except clause around the decoding alone."""
NO_STATE: Final = (
    *UNDECODABLE,
    struct.error,
    ValueError,
    AssertionError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
)
"""For an except clause around a machine's `restore`: it assumes a state that a machine wrote."""
