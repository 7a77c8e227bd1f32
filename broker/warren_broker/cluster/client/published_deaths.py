"""The header x-death of a message that a client published, often a dead letter published again.

As in RabbitMQ, consumers see it as it came, and it is no history: when the message dies, its deaths
are counted from one, and none of the header's makes the message a cycle's. The order of the headers
says whether a history is the broker's, which clients do not see: x-death is the last header of a
message from a client, where `kernel.set_deaths_apart` puts it, and never of a dead letter, which
has `LAST_DEATH` behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

X_DEATH: Final = "x-death"
LAST_DEATH: Final = ("x-last-death-queue", "x-last-death-reason", "x-last-death-exchange")
"""Headers of every dead letter."""


def is_history(headers: Mapping[str, object]) -> bool:
    """Return whether the broker has written the header x-death, if there is one."""
    return list(headers)[-1:] != [X_DEATH]
