"""How Proton's engine was compiled."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from warren_wire.amqp10.proton import compiled_engine


@cache
def has_assertions() -> bool:
    """Return whether an assertion of the engine would end the process.

    Python's own flags compile extensions without; then nothing in the engine refers to the C
    library's function for an assertion that fails.
    """
    return b"__assert" in Path(compiled_engine).read_bytes()
