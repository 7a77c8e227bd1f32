"""The base class of the commands of a queue."""

from __future__ import annotations

import msgspec


class QueueCommand(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base class of all commands."""
