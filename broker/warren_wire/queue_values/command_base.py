"""The base classes of the commands of a queue and of their replies."""

from __future__ import annotations

import msgspec


class QueueCommand(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base class of all commands."""


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """The base class of all replies."""
