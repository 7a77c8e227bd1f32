"""The errors of a decoder of MessagePack or JSON for bytes that come from outside.

Bytes of a peer, of a client or of a file are refused with an error of the module that decodes them.
What msgspec raises for them has no common base: a text that is no UTF-8 is a UnicodeDecodeError;
values that are nested too deep are a RecursionError, even in a field that the type does not know.
How deep that is depends on Python, and on the calls around: from 900 levels (3.11) to 10,000
(3.13). A value that is then walked in Python, where 1,000 calls are the limit with every version,
or that is kept, needs a limit of its own: `nested_deeper`.
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


NESTING_LEVELS_MAX: Final = 500
"""Of a value in JSON from a client: less than any Python's decoders refuse by themselves."""


def nested_deeper(value: object, most: int) -> bool:
    """Return whether a decoded value has more than `most` lists and maps in each other."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
