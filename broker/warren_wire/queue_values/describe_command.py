"""The command that says which batch of which query reads a claim, for people to see."""

from __future__ import annotations

import msgspec

from warren_wire.queue_values.command_base import QueueCommand


class ReadBy(msgspec.Struct, frozen=True, array_like=True):
    """A batch of a streaming query. name: of the query; "": it has none."""

    query: str
    name: str
    batch: int


class DescribeClaim(QueueCommand, frozen=True, array_like=True, tag="describe_claim"):
    """Note the batch that reads an open claim. Reply: Done, also when there is no such claim.

    It decides about nothing: it is no sign of life, renews nothing, and is not fenced. The latest
    claim that was described is remembered, also after it was settled.
    """

    reader: str
    number: int
    read_by: ReadBy
