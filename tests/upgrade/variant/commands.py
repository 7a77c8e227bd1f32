"""The commands that the version after this one adds to the machines."""

from __future__ import annotations

from warren_machines.metadata.commands import MetadataCommand
from warren_wire.queue_values.command_base import QueueCommand


class Remark(QueueCommand, frozen=True, array_like=True, tag="remark"):
    """Add a remark to a queue."""

    text: str


class Note(MetadataCommand, frozen=True, array_like=True, tag="note"):
    """Add a note to the cluster's definitions."""

    text: str
