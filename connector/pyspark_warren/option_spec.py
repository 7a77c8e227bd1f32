"""What one option of `format("warren")` is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark_warren.option_values import TIME_UNITS_MS

AUTO: Final = "auto"
WARREN: Final = "warren"
AMQP: Final = "amqp"
"""The values of option broker."""
EITHER: Final = "either"


@dataclass(frozen=True, slots=True)
class Spec:
    """One option.

    minimum, maximum  bounds of the parsed number, None: none
    where             "read", "write" or "both"
    how               "batch" or "stream": it is refused in the other one; "both"
    broker            WARREN or AMQP: it is refused with a broker of the other kind; EITHER
    secret            no error shows its value
    """

    name: str
    field: str
    parse: Callable[[str], Any]
    default: Any
    meaning: str
    where: str = "both"
    minimum: int | None = None
    maximum: int | None = None
    how: str = "both"
    broker: str = EITHER
    secret: bool = False


INT_MAX: Final = 2**31 - 1
DAY_MS: Final = TIME_UNITS_MS["d"]


def secret_names(option: str) -> tuple[str, str, str]:
    """Return the names of the options that say a secret, of which at most one is given."""
    return option, f"{option}File", f"{option}Env"
