"""What a target of the fuzzer is, and what its functions share.

A target plays bytes: it raises nothing for bytes that its decoders refuse with the errors that they
declare, and any other error is a finding. `run.py` says how the bytes are chosen.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from warren_wire.kernel import Kernel, load

TWIN_SHARE = 128
"""The interpreted kernel is compared on one input in so many, and on all that a run keeps: it takes
fifty times as long as the compiled one."""
_ALWAYS = os.environ.get("WARREN_FUZZ_TWIN") == "always"

SLOW: Kernel = load("interpreted")
try:
    FAST: Kernel = load("compiled")
except ImportError:  # it was not compiled here: the twins are one
    FAST = SLOW


@dataclass(frozen=True)
class Target:
    """Decoders that one input is given to.

    play      of one input; raises for a finding
    seeds     inputs made by the encoders, from which the fuzzer begins
    compiled  the kernel's C code plays it: with AddressSanitizer, which takes most of the time
    plain     with `compiled`: most of a run is without AddressSanitizer, see `run`
    heads     where MessagePack may begin in an input, which is changed by `reshape`, too
    """

    name: str
    play: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    compiled: bool = False
    plain: bool = False
    heads: tuple[int, ...] = ()


def with_twin(data: bytes) -> bool:
    """Return whether the interpreted kernel plays this input, too; always in a replay."""
    return _ALWAYS or zlib.crc32(data) % TWIN_SHARE == 0


def outcome(call: Callable[[], Any], *refused: type[Exception]) -> Any:
    """Return the call's result, or the type and text of a declared error."""
    try:
        return call()
    except refused as error:
        return type(error).__name__, str(error)


def same(what: str, one: Any, other: Any) -> None:
    """Raise unless the two are equal."""
    if one != other:
        raise AssertionError(f"{what}: {one!r:.400} differs from {other!r:.400}")
